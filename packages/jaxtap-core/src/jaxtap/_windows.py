"""The last values of a series, kept so that what is asked of them takes no pass over the window."""

from __future__ import annotations

import bisect
import collections


class Ordered:
    """The last `window` finite values, in order of size too."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._last: collections.deque[float] = collections.deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._last)

    def push(self, value: float) -> None:
        """Take up a value; of more than `window`, the oldest goes."""
        if len(self._last) == self._window:
            del self._sorted[bisect.bisect_left(self._sorted, self._last.popleft())]
        self._last.append(value)
        bisect.insort(self._sorted, value)

    def clear(self) -> None:
        """Forget all."""
        self._last.clear()
        self._sorted.clear()

    @property
    def least(self) -> float:
        """The least value."""
        return self._sorted[0]

    @property
    def greatest(self) -> float:
        """The greatest value."""
        return self._sorted[-1]

    @property
    def median(self) -> float:
        """The median; of an even number, the mean of the two in the middle."""
        half, odd = divmod(len(self._sorted), 2)
        return self._sorted[half] if odd else (self._sorted[half - 1] + self._sorted[half]) / 2


class Counted:
    """How many of the last `window` answers were yes."""

    def __init__(self, window: int) -> None:
        self._last: collections.deque[bool] = collections.deque(maxlen=window)
        self.is_full = False
        self.count = 0

    def push(self, answer: bool) -> None:
        """Take up an answer."""
        if self.is_full:
            self.count -= self._last[0]
        self._last.append(answer)
        self.count += answer
        self.is_full = len(self._last) == self._last.maxlen
