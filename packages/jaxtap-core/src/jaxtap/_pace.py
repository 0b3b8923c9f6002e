"""How often a running loop crosses to the host: seldom enough to cost little, often enough to be live."""

from __future__ import annotations

import time
from collections.abc import Callable

# What is aimed at between two flushes. A flush takes some fifty microseconds, which is half a per cent of that; and
# of a step that suddenly takes five times as long the host still hears within 50 ms.
TARGET_S = 0.010

# Of a loop that begins anew, how many trips at most are left until its second flush.
_AT_FIRST = 16


class Pace:
    """Steers one loop: how many trips until the next flush.

    Args:
      fixed: always this many; None adapts to the time that trips take.
      clock: seconds, for differences.

    >>> seconds = iter([0.0, 0.001, 0.001, 0.003])
    >>> pace = Pace(clock=lambda: next(seconds))
    >>> pace.after(1, first=True)
    1
    >>> pace.goes_on(); pace.after(1)
    2
    >>> pace.goes_on(); pace.after(2)
    4
    """

    def __init__(self, fixed: int | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._fixed, self._clock = fixed, clock
        self._interval = 1
        self._since: float | None = None

    @property
    def first(self) -> int:
        """How many trips until the first flush: one, so that the host hears of it at once."""
        return self._fixed or 1

    def after(self, trips: int, first: bool = False) -> int:
        """A flush has come: how many trips until the next.

        Args:
          trips: how many there were since the last one.
          first: whether the loop has begun anew.
        """
        if self._fixed is not None:
            return self._fixed
        if first or self._since is None:
            self._interval = min(self._interval, _AT_FIRST)
        else:
            each = max(self._clock() - self._since, 1e-9) / max(trips, 1)
            self._interval = max(1, min(2 * self._interval, int(TARGET_S / each)))
        return self._interval

    def goes_on(self) -> None:
        """The flush is over, and the program goes on."""
        self._since = self._clock()
