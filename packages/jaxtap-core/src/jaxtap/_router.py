"""The thread on which user functions run: never one of XLA's, so that they may call JAX, block or raise."""

from __future__ import annotations

import atexit
import collections
import contextlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from jaxtap._dispatch import programs
from jaxtap._guard import Guard

# How long a finished program waits for user functions, and how long for one that makes no progress. It waits at
# all so that `jax.effects_barrier()` covers them as it covers those of `jax.debug.callback`; but a function that
# itself runs JAX may need the very thread that waits.
LONGEST_WAIT_S = 5.0
STALL_S = 0.5

_guard = Guard()


class Router:
    """Runs jobs one after the other on a daemon thread, started when the first job comes."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            # A fork has no thread but the one that forked.
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._later: collections.deque[tuple[float, Callable[[], Any]]] = collections.deque()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = 0

    def put(self, job: Callable[[], Any]) -> None:
        """Run `job` after those put before it."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="jaxtap", daemon=True)
                    self._thread.start()
        self._jobs.put(job)

    def put_within(self, job: Callable[[], Any], seconds: float) -> None:
        """Run `job` after at most some seconds, sooner if someone waits: what comes until then is done with it."""
        if not seconds:
            self.put(job)
            return
        self._later.append((time.monotonic() + seconds, job))
        self.put(_nothing)

    def _next(self) -> Callable[[], Any]:
        """Wait for the next job, and meanwhile run those whose time is up."""
        while True:
            self._run_later(time.monotonic())
            due = min((at for at, _ in tuple(self._later)), default=None)
            if due is None:
                return self._jobs.get()
            with contextlib.suppress(queue.Empty):
                return self._jobs.get(timeout=max(0.0, due - time.monotonic()))

    def _run_later(self, until: float) -> None:
        """On the thread itself, which alone takes jobs out: run those that are due at some time."""
        for item in tuple(self._later):
            if item[0] <= until:
                self._later.remove(item)
                self._do(item[1])

    def _run(self) -> None:
        while True:
            self._do(self._next())

    def _do(self, job: Callable[[], Any]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - this thread must outlive whatever a user function raises
            _guard.failed("a user function", error)
        self.progress()

    def progress(self) -> None:
        """A job that calls many user functions has called one more."""
        self._ended += 1

    def is_own(self) -> bool:
        """Whether this is the thread on which jobs run."""
        return threading.current_thread() is self._thread

    def drain(self) -> None:
        """Wait until the jobs put so far have run."""
        if self._thread is not None and not self.is_own():
            self._mark().wait()

    def catch_up(self) -> bool:
        """As `drain`, but give up when jobs stall or take too long; returns whether they have all run."""
        if self._thread is None or self.is_own():
            return True
        done, before, until = self._mark(), -1, time.monotonic() + LONGEST_WAIT_S
        while not done.wait(STALL_S):
            if self._ended == before or time.monotonic() > until:
                return False
            before = self._ended
        return True

    def _mark(self) -> threading.Event:
        """An event that is set when the jobs put so far have run."""
        done = threading.Event()

        def last() -> None:
            # No lock is taken for those that may wait: Ctrl-C can come while it is, and leave it so.
            self._run_later(math.inf)
            done.set()

        self._jobs.put(last)
        return done


def _nothing() -> None:
    """Wakes the thread."""


router = Router()


def settle() -> None:
    """Wait until what the programs of this thread have sent has arrived and has been handed on.

    Raises:
      jax.errors.JaxRuntimeError: if one of the programs has failed.
    """
    try:
        programs.wait()
        jax.effects_barrier()
    finally:
        router.drain()


@atexit.register
def _at_exit() -> None:
    try:
        settle()
    except Exception as error:  # noqa: BLE001 - a failed program has been reported to whoever ran it
        _guard.failures.setdefault(repr(error), 1)
