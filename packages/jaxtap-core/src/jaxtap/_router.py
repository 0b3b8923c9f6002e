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
        # Jobs that were put off: until when at most, for how long, and what.
        self._later: collections.deque[tuple[float, float, Callable[[], Any]]] = collections.deque()
        # When the thread will look at them by itself; 0 where it must be told of one.
        self._looks_at = 0.0
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
        due = time.monotonic() + seconds
        self._later.append((due, seconds, job))
        if not 0.0 < self._looks_at <= due:
            self.put(_nothing)

    def _next(self) -> Callable[[], Any]:
        """Wait for the next job, and meanwhile run those that were put off."""
        while True:
            left = self._until_it_looks()
            if left is None or left > 0.0:
                with contextlib.suppress(queue.Empty):
                    return self._jobs.get(timeout=left)
            seconds = self._run_later()
            # More may be put off meanwhile, and need not wake this thread: to wake is most of what that would cost.
            self._looks_at = time.monotonic() + seconds if seconds else 0.0

    def _until_it_looks(self) -> float | None:
        """Seconds until jobs that were put off are run; None where there are none, and whoever puts one off says so."""
        if not self._looks_at and not self._later:
            return None
        self._looks_at = min([self._looks_at or math.inf, *(due for due, _, _ in tuple(self._later))])
        return self._looks_at - time.monotonic()

    def _run_later(self) -> float:
        """On the thread itself, which alone takes jobs out: run those that were put off.

        Returns:
          The shortest time that one of them would have waited; 0 if there were none.
        """
        taken = sorted((self._later.popleft() for _ in range(len(self._later))), key=lambda item: item[0])
        for _, _, job in taken:
            self._do(job)
        return min((seconds for _, seconds, _ in taken), default=0.0)

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
            self._run_later()
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
