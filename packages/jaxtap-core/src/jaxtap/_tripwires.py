"""Tripwires on rows: rules with a threshold, each of which says once what has gone wrong, where and when."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import jax.numpy as jnp

from jaxtap._guard import Guard
from jaxtap._judging import Judge, Rule
from jaxtap._rows import SERIES_KEPT, Row

_guard = Guard()


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
        """A layer's name, which is what follows the first `/` in the column; empty for a value of the whole step."""
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
        look, where = Panel((dataclasses.replace(self, where=None),)), self.where
        return look if where is None else lambda row: look(row) if where(row) else ()

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As a traced predicate of a step's values, by column; None where that is not enough."""
        if self.where is not None:
            return None
        found = [self.rule.at_once(v) for name, v in values.items() if fnmatch.fnmatchcase(name, self.column)]
        bad = [each for each in found if each is not None]
        return None if not bad else _any(bad)

    def trip(self, row: Row, column: str, value: float) -> Trip:
        """What is told of a bad value."""
        layer = column.partition("/")[2]
        return Trip(self.name, self.says.format(value=value, layer=layer, rule=self.rule, row=row), row, column)


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
                return ()
            in_a_row[row.series] = in_a_row[row.series] + 1 if self.bad(row) else 0
            if in_a_row[row.series] != self.at_least:
                return ()
            return (Trip(self.name, self.says.format(row=row), row),)

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


@functools.lru_cache(maxsize=1024)
def fitting(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a glob fits. Rows of one loop have the same columns, step after step."""
    return tuple(name for name in names if fnmatch.fnmatchcase(name, pattern))


class _Column:
    """One column of one series, and a tripwire on it."""

    def __init__(self, wire: OnColumn, number: int, column: str) -> None:
        self.wire, self.number, self.column = wire, number, column
        self.judge: Judge = wire.rule.fresh()
        self.is_bad = False

    def look(self, row: Row) -> Trip | None:
        """What is told of the column's value in a row."""
        value = row.values[self.column]
        if type(value) is not float:
            value = float(value)
        if not self.judge(value):
            self.is_bad = False
            return None
        if self.is_bad:
            return None
        self.is_bad = True
        return self.wire.trip(row, self.column, value)


class Panel:
    """Tripwires at work: all of them look at one row after the other, in order.

    Args:
      wires: the tripwires.
      failed: told of an error in one of them, which ends nothing; None raises it.
    """

    def __init__(self, wires: Iterable[Tripwire], failed: Callable[[Exception], object] | None = None) -> None:
        # Those on columns are looked at here, the others look by themselves.
        self._given = tuple(wires)
        self._wires = [
            wire if isinstance(wire, OnColumn) and wire.where is None else wire.start() for wire in self._given
        ]
        self._failed = failed
        # What is to be done with a row, by its series, then by its columns and whether it lies between regular ones.
        self._plans: dict[Any, dict[tuple[tuple[str, ...], bool], list[_Column | Watching]]] = {}

    def __call__(self, row: Row) -> list[Trip]:
        """What has gone wrong in a row."""
        kind = (tuple(row.values), row.between)
        plans = self._plans.pop(row.series, None)
        plans = self._plans[row.series] = {} if plans is None else plans
        plan = plans.get(kind)
        if plan is None:
            plan = plans[kind] = self._planned(row, plans, alone=kind[1])
            if len(self._plans) > SERIES_KEPT:
                for series in list(self._plans)[: -SERIES_KEPT // 2]:
                    del self._plans[series]
        trips: list[Trip] = []
        for each in plan:
            try:
                if type(each) is _Column:
                    trip = each.look(row)
                    if trip is not None:
                        trips.append(trip)
                else:
                    trips += each(row)  # pyright: ignore[reportCallIssue, reportOptionalOperand]
            except Exception as error:  # noqa: BLE001 - a tripwire may raise anything
                self._raised(error)
        return trips

    def _planned(
        self, row: Row, plans: Mapping[Any, list[_Column | Watching]], alone: bool
    ) -> list[_Column | Watching]:
        found = [each for plan in plans.values() for each in plan if isinstance(each, _Column)]
        known = {(each.number, each.column): each for each in found}
        plan: list[_Column | Watching] = []
        for number, (wire, given) in enumerate(zip(self._wires, self._given, strict=True)):
            try:
                if alone and given.at_once(row.values) is None:
                    # It needs the rows before.
                    continue
                if not isinstance(wire, OnColumn):
                    plan.append(wire)
                    continue
                for column in self._looked_at(wire, row):
                    plan.append(known.get((number, column)) or _Column(wire, number, column))
            except Exception as error:  # noqa: BLE001 - a tripwire may raise anything
                self._raised(error)
        return plan

    def _raised(self, error: Exception) -> None:
        if self._failed is None:
            raise error
        self._failed(error)

    def _looked_at(self, wire: OnColumn, row: Row) -> Sequence[str]:
        if "*" not in wire.column and "?" not in wire.column:
            return (wire.column,) if wire.column in row.values else ()
        return fitting(wire.column, tuple(row.values))


def deciding(columns: Callable[[Any], Mapping[str, Any]], wires: tuple[Tripwire, ...]) -> Callable[[Any], Any]:
    """A traced predicate of leaves: whether a tripwire that needs no other row fires.

    Equal arguments give the same function, so that what is compiled with it is compiled once.

    Args:
      columns: a traced function from the leaves to a step's values, by column.
      wires: the tripwires.
    """
    try:
        return _deciding(columns, wires)
    except TypeError:
        # A tripwire of a user's own need not be hashable.
        return _deciding.__wrapped__(columns, wires)


@functools.lru_cache(maxsize=64)
def _deciding(columns: Callable[[Any], Mapping[str, Any]], wires: tuple[Tripwire, ...]) -> Callable[[Any], Any]:
    def fires(leaves: Any) -> Any:
        values, fired = columns(leaves), jnp.bool_(False)
        for wire in wires:
            bad = _guard.call("a tripwire", wire.at_once, values)
            fired = fired if bad is None else fired | jnp.any(bad)
        return fired

    return fires


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
