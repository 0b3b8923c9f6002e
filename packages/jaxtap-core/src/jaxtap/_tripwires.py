"""Tripwires on rows: rules with a threshold, each of which says once what has gone wrong, where and when."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from jaxtap._rows import Row

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
        return lambda value: bool(self.at_once(value))

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
        last: collections.deque[float] = collections.deque(maxlen=self.window)

        def judge(value: float) -> bool:
            middle = statistics.median(last) if len(last) >= self.at_least else math.inf
            if math.isfinite(value):
                last.append(value)
            return value > self.factor * middle

        return judge


@dataclasses.dataclass(frozen=True)
class Often(_OverTime):
    """Bad is when, of the last `window` values, at least the share `share` was bad by another rule."""

    rule: Rule
    window: int
    share: float = 1.0

    def fresh(self) -> Judge:
        judge, last = self.rule.fresh(), collections.deque[bool](maxlen=self.window)

        def often(value: float) -> bool:
            last.append(judge(value))
            return len(last) == self.window and sum(last) >= self.share * self.window

        return often


@dataclasses.dataclass(frozen=True)
class Unchanged(_OverTime):
    """Bad is when the last `window` values are the same, or differ by less than the share `relative` of the largest."""

    window: int
    relative: float = 0.0

    def fresh(self) -> Judge:
        last: collections.deque[float] = collections.deque(maxlen=self.window)

        def judge(value: float) -> bool:
            last.append(value)
            if len(last) < self.window or not all(map(math.isfinite, last)):
                return False
            return max(last) - min(last) <= self.relative * max(map(abs, last))

        return judge


@dataclasses.dataclass(frozen=True)
class Trip:
    """A tripwire that has fired.

    Attributes:
      tripwire: its name.
      message: what has happened, in words.
      row: where and when.
      column: what was looked at, such as `"grad_norm/Dense_0"`; empty where it was several.
    """

    tripwire: str
    message: str
    row: Row
    column: str = ""

    @property
    def layer(self) -> str:
        """The part of the column after the first `/`: a layer's name; empty for a value of the whole step."""
        return self.column.partition("/")[2]


class Watching(Protocol):
    """Looks at complete rows one after the other, and gives what has gone wrong in each."""

    def __call__(self, row: Row, /) -> Iterable[Trip]: ...


class Tripwire(Protocol):
    """What a user hands to `tripwires=`."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def start(self) -> Watching:
        """Begin to look at rows."""
        ...

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As a traced predicate of a step's values, by column; None where that is not enough."""
        ...


@dataclasses.dataclass(frozen=True)
class OnColumn:
    """A tripwire on a column, or on each of several. It fires when values turn bad; again only if they have been good.

    Attributes:
      name: what it is called.
      column: the column looked at, or a glob such as `"grad_norm/*"`; each column that fits is looked at by itself.
      rule: when a value is bad.
      says: the message: a format of `value`, `layer` (what follows the first `/` in the column), `rule` and `row`.
      where: which rows are looked at; None for all.
    """

    name: str
    column: str
    rule: Rule
    says: str
    where: Callable[[Row], bool] | None = None

    def start(self) -> Watching:
        """Begin to look at rows."""
        return _OnColumn(self)

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As a traced predicate of a step's values, by column; None where that is not enough."""
        if self.where is not None:
            return None
        found = [self.rule.at_once(v) for name, v in values.items() if fnmatch.fnmatchcase(name, self.column)]
        bad = [each for each in found if each is not None]
        return None if not bad else _any(bad)


@dataclasses.dataclass(frozen=True)
class OnRow:
    """A tripwire on several columns together. It fires when they turn bad; again only if they have been good.

    Attributes:
      name: what it is called.
      columns: the columns needed; rows that lack one are passed over.
      bad: whether they are bad: of the row, or, traced, of a dictionary of a step's values.
      says: the message: a format of `row`, as in `{row[loss]:.3g}`.
      at_least: in so many rows, one after the other.
    """

    name: str
    columns: tuple[str, ...]
    bad: Callable[[Any], Any]
    says: str
    at_least: int = 1

    def start(self) -> Watching:
        """Begin to look at rows."""
        in_a_row: collections.Counter[Any] = collections.Counter()

        def look(row: Row) -> Iterable[Trip]:
            if any(column not in row.values for column in self.columns):
                return
            in_a_row[row.series] = in_a_row[row.series] + 1 if self.bad(row) else 0
            if in_a_row[row.series] == self.at_least:
                yield Trip(self.name, self.says.format(row=row), row)

        return look

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As a traced predicate of a step's values, by column; None where that is not enough."""
        if self.at_least > 1 or any(column not in values for column in self.columns):
            return None
        return self.bad(values)


def _any(each: Sequence[Any]) -> Any:
    so_far = each[0]
    for more in each[1:]:
        so_far = so_far | more
    return so_far


class _OnColumn:
    def __init__(self, wire: OnColumn) -> None:
        self._wire = wire
        self._judges: dict[Any, Judge] = {}
        self._bad: set[Any] = set()

    def __call__(self, row: Row) -> Iterable[Trip]:
        wire = self._wire
        if wire.where is not None and not wire.where(row):
            return
        for column in self._columns(row):
            value, key = float(row.values[column]), (row.series, column)
            judge = self._judges.get(key)
            if judge is None:
                judge = self._judges[key] = wire.rule.fresh()
            before = key in self._bad
            if not judge(value):
                self._bad.discard(key)
            elif not before:
                self._bad.add(key)
                layer = column.partition("/")[2]
                yield Trip(wire.name, wire.says.format(value=value, layer=layer, rule=wire.rule, row=row), row, column)

    def _columns(self, row: Row) -> Sequence[str]:
        pattern = self._wire.column
        if "*" not in pattern and "?" not in pattern:
            return (pattern,) if pattern in row.values else ()
        return _fitting(pattern, tuple(row.values))


@functools.lru_cache(maxsize=256)
def _fitting(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    # Rows of one loop have the same columns, step after step.
    return tuple(name for name in names if fnmatch.fnmatchcase(name, pattern))


def chosen(tripwires: Any, defaults: Callable[[], Sequence[Tripwire]]) -> tuple[Tripwire, ...]:
    """The tripwires that a user asks for: all defaults, none, or those of a list.

    Raises:
      TypeError: if it is neither True, False, nor a list of tripwires.
    """
    if isinstance(tripwires, bool) or tripwires is None:
        return tuple(defaults()) if tripwires else ()
    wires = tuple(tripwires) if isinstance(tripwires, (list, tuple)) else (tripwires,)
    for wire in wires:
        if not hasattr(wire, "start") or not hasattr(wire, "at_once"):
            names = ", ".join(each.name for each in defaults())
            raise TypeError(
                f"tripwires must be True, False or a list of tripwires; got {wire!r}. The defaults are: {names}."
            )
    return wires
