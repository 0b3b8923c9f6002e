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
    """What was put in this thread."""

    def __init__(self) -> None:
        self.items: list[Any] = []


class Afterwards:
    """Keeps what is put while JAX lowers a program, and hands it on when the program is whole.

    It listens from the first such item until it is told to stop.

    Args:
      finish: called with all items, in the thread that lowers.
    """

    def __init__(self, finish: Callable[[list[Any]], None]) -> None:
        self._finish = finish
        self._waiting = _Waiting()
        self._lock = threading.Lock()
        self._listens = False

    def put(self, item: Any) -> None:
        """Keep something of the program that JAX is lowering in this thread."""
        with self._lock:
            if not self._listens:
                monitoring.register_event_duration_secs_listener(self._on_duration)
                self._listens = True
        self._waiting.items.append(item)

    def stop(self) -> None:
        """Listen no more, until something is put again."""
        with self._lock:
            if self._listens and not self._waiting.items:
                self._listens = False
                # Whoever has cleared all listeners in the meantime has taken this one, too.
                with contextlib.suppress(AssertionError, ValueError):
                    monitoring.unregister_event_duration_listener(self._on_duration)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == LOWERED and self._waiting.items:
            items, self._waiting.items = self._waiting.items, []
            _guard.call("looking through a lowered program", self._finish, items)
