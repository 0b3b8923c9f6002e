"""Rules: when a value of a column is bad, given those before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

from jaxtap._windows import Counted, Ordered

# Whether a value is bad, given those before it.
Judge = Callable[[float], bool]


class Rule(Protocol):
    """When a value of a column is bad."""

    def fresh(self) -> Judge:
        """A judge of one series of values, from its beginning."""
        ...

    def at_once(self, value: Any) -> Any:
        """As a traced predicate of one value, whatever came before it; None where that is not enough."""
        ...


@dataclasses.dataclass(frozen=True)
class Outside:
    """Bad is what lies below `low` or above `high`; NaN is not, unless `nan` says so."""

    low: float = -math.inf
    high: float = math.inf
    nan: bool = False

    def fresh(self) -> Judge:
        low, high = self.low, self.high
        if self.nan:
            return lambda value: not low <= value <= high
        return lambda value: value < low or value > high

    def at_once(self, value: Any) -> Any:
        bad = (value < self.low) | (value > self.high)
        return bad | (value != value) if self.nan else bad


@dataclasses.dataclass(frozen=True)
class NonFinite:
    """Bad is NaN, or plus or minus infinity. A column that a row does not have is not looked at."""

    def fresh(self) -> Judge:
        return lambda value: not math.isfinite(value)

    def at_once(self, value: Any) -> Any:
        return ~(abs(value) < math.inf)


class _OverTime:
    """A rule that takes the values before."""

    def at_once(self, value: Any) -> Any:
        return None


@dataclasses.dataclass(frozen=True)
class Spike(_OverTime):
    """Bad is more than `factor` times the median of the last `window` finite values, once there are `at_least`."""

    factor: float
    window: int
    at_least: int = 10

    def fresh(self) -> Judge:
        last = Ordered(self.window)

        def judge(value: float) -> bool:
            middle = last.median if len(last) >= self.at_least else math.inf
            if math.isfinite(value):
                last.push(value)
            return value > self.factor * middle

        return judge


@dataclasses.dataclass(frozen=True)
class Often(_OverTime):
    """Bad is when, of the last `window` values, at least the share `share` was bad by another rule."""

    rule: Rule
    window: int
    share: float = 1.0

    def fresh(self) -> Judge:
        judge, last, enough = self.rule.fresh(), Counted(self.window), self.share * self.window

        def often(value: float) -> bool:
            last.push(judge(value))
            return last.is_full and last.count >= enough

        return often


@dataclasses.dataclass(frozen=True)
class Unchanged(_OverTime):
    """Bad is when the last `window` values are the same, or differ by less than the share `relative` of the largest."""

    window: int
    relative: float = 0.0

    def fresh(self) -> Judge:
        return self._nearly() if self.relative else self._exactly()

    def _exactly(self) -> Judge:
        before, in_a_row = math.nan, 0

        def judge(value: float) -> bool:
            nonlocal before, in_a_row
            in_a_row = in_a_row + 1 if value == before else 1
            before = value
            return in_a_row >= self.window and math.isfinite(value)

        return judge

    def _nearly(self) -> Judge:
        last = Ordered(self.window)

        def judge(value: float) -> bool:
            if not math.isfinite(value):
                last.clear()
                return False
            last.push(value)
            if len(last) < self.window:
                return False
            low, high = last.least, last.greatest
            return high - low <= self.relative * max(abs(low), abs(high))

        return judge
