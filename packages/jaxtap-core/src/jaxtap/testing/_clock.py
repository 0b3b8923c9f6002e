"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from types import TracebackType

from jaxtap import _emit
from jaxtap._patches import Patch, install, uninstall


class Clock:
    """In place of the clock that events are dated by, for the time of a `with` block.

    Args:
      now: seconds since the epoch.

    Attributes:
      now: what it shows. Set it, or let it `advance`.

    >>> import jax, jaxtap
    >>> from jaxtap.testing import Clock
    >>> with Clock(100.0) as clock, jaxtap.record() as rec:
    ...     total = jax.lax.fori_loop(0, 2, lambda i, total: total + i, 0)
    >>> [event.time for event in rec.events]
    [100.0, 100.0]
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._patch = Patch(_emit, "now", lambda _: self._read)

    def _read(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let it go on."""
        self.now += seconds

    def __enter__(self) -> Clock:
        install([self._patch])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        uninstall([self._patch])
