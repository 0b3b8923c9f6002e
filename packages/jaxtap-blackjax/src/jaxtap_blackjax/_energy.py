"""E-BFMI over a window: how far the energy moves from one transition to the next, against how far it spreads."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

from jaxtap.internal import Judge

# Sums are of integers, in which no error adds up, in units of 2**-40. A float32 of more than 2e-5 is whole in them;
# what is cut off of others is less than 1e-12.
_UNIT = 2.0**40
# From here on an energy is no number of units.
_LARGEST = 1e290


class Energies:
    """The last `window` finite energies, of which the E-BFMI takes no pass over them."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._last: collections.deque[int] = collections.deque()
        self._sum = self._squares = self._jumps = 0

    def push(self, energy: float) -> None:
        """Take up an energy; one that is not finite makes the window begin anew."""
        last = self._last
        if not -_LARGEST < energy < _LARGEST:
            last.clear()
            self._sum = self._squares = self._jumps = 0
            return
        if len(last) == self._window:
            oldest = last.popleft()
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._jumps -= (last[0] - oldest) ** 2 if last else 0
        now = int(energy * _UNIT)
        self._sum += now
        self._squares += now * now
        self._jumps += (now - last[-1]) ** 2 if last else 0
        last.append(now)

    @property
    def is_full(self) -> bool:
        """Whether there are as many as the window holds."""
        return len(self._last) == self._window

    @property
    def fraction(self) -> float:
        """`mean(diff(E)**2) / var(E)`; infinity where no energy differs."""
        n = len(self._last)
        spread = n * self._squares - self._sum * self._sum
        return self._jumps * n * n / (spread * (n - 1)) if spread else math.inf


@dataclasses.dataclass(frozen=True)
class EnergyFraction:
    """Bad is when the E-BFMI of the last `window` energies, `mean(diff(E)**2) / var(E)`, is below `threshold`."""

    threshold: float
    window: int

    def fresh(self) -> Judge:
        """A judge of one chain."""
        last = Energies(self.window)

        def judge(energy: float) -> bool:
            last.push(energy)
            return last.is_full and last.fraction < self.threshold

        return judge

    def at_once(self, value: Any) -> Any:
        """One energy tells nothing."""
        return None
