"""What is done with a program that JAX has just lowered, before it is compiled.

A mark is lowered where it stands, and what comes after it is not there yet. JAX tells whoever listens how long lowering
a program took: then it is whole.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from jax import monitoring

from jaxtap._guard import Guard

LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"

_guard = Guard()


class _Waiting(threading.local):
    """What is to be done in this thread."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []


class Afterwards:
    """Does what waits for a program to be whole. It listens from the first such job until it is told to stop."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        self._lock = threading.Lock()
        self._listens = False

    def put(self, job: Callable[[], None]) -> None:
        """Do this when JAX has lowered the program that it is lowering in this thread."""
        with self._lock:
            if not self._listens:
                monitoring.register_event_duration_secs_listener(self._on_duration)
                self._listens = True
        self._waiting.jobs.append(job)

    def stop(self) -> None:
        """Listen no more, until there is something to do again."""
        with self._lock:
            if self._listens and not self._waiting.jobs:
                self._listens = False
                # Whoever has cleared all listeners in the meantime has taken this one, too.
                with contextlib.suppress(AssertionError, ValueError):
                    monitoring.unregister_event_duration_listener(self._on_duration)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == LOWERED and self._waiting.jobs:
            jobs, self._waiting.jobs = self._waiting.jobs, []
            for job in jobs:
                _guard.call("looking through a lowered program", job)


afterwards = Afterwards()
