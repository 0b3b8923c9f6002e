"""Rows: what is seen of one step in one lane, put together from the events that tell of it."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtap._events import TapEvent

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass
class Row:
    """One step of one lane.

    Attributes:
      path: address of the loop; outside of any, that of the value that was seen.
      step: index of the step: what the event's value says under the name `"step"`, else the loop's own, else,
        outside of any loop, how many came before it.
      total: trip count of the loop, or None.
      lane: index under `vmap`, `()` without.
      outer: step of each enclosing loop.
      call: which execution of the loop.
      time: arrival of its first event, in seconds since the epoch.
      values: what was seen, by column.
      point: address of the value that was seen, where rows are of single values; else empty.
      index: the loop's own step, whatever the value says; outside of any loop, how many came before.
      devices: indices of the devices that have told of it, each for itself.
      between: whether it lies between the steps that are sent regularly, and was sent since a tripwire fires in it.
    """

    path: str
    step: int
    total: int | None
    lane: tuple[int, ...]
    outer: tuple[int, ...]
    call: int
    time: float
    values: dict[str, Any]
    point: str = ""
    index: int = 0
    devices: frozenset[int] = frozenset({0})
    between: bool = False

    def __getitem__(self, column: str) -> Any:
        """What was seen under the name of a column; NaN where nothing was."""
        return self.values.get(column, float("nan"))

    @functools.cached_property
    def series(self) -> tuple[Any, ...]:
        """What the rows of one run of one lane have in common."""
        return (self.point or self.path, self.lane, self.outer, self.call, min(self.devices))

    @property
    def is_in_loop(self) -> bool:
        """Whether it is of a step of a loop."""
        return self.path.rpartition("/")[2].startswith(_LOOPS)


_LOOPS = ("scan[", "while[")
_NONE: tuple[int, Row | None, int] = (-1, None, 0)
# Series whose last rows are remembered. A loop begun anew is another one.
SERIES_KEPT = 10_000

# Whether a row is of a step that is not sent regularly, given the step that its value says, if it does.
Between = Callable[[Row, "int | None"], bool]
# What an event adds to its row, by column; None if it is no part of any row.
Columns = Callable[[TapEvent], "Mapping[str, Any] | None"]


class Rows:
    """Puts rows together.

    Args:
      columns: what an event adds to its row.
      events_per_row: how many events tell of a step of a loop. A row is complete with that many, or when a later one
        has begun. With 1, rows are of single values: two in one loop make a series each.
      capacity: keep only the newest this many rows; None keeps all.
      merges: whether values, by column, are of the row before, as another device has seen it; then it takes them up.
        None keeps each device's rows as a series of their own.
      between: whether a row is of a step that is not sent regularly: it is complete with its first event.
    """

    def __init__(
        self,
        columns: Columns,
        events_per_row: int = 1,
        capacity: int | None = None,
        merges: Callable[[Row, Mapping[str, Any]], bool] | None = None,
        between: Between | None = None,
    ) -> None:
        self._columns, self._events_per_row, self._merges = columns, events_per_row, merges
        self.kept: collections.deque[Row] = collections.deque(maxlen=capacity)
        self._between = between
        self._open: dict[tuple[Any, ...], tuple[int, Row, int]] = {}
        self.count = 0

    def add(self, event: TapEvent) -> Sequence[Row]:
        """Take up an event; returns the rows that are complete with it."""
        found = self._columns(event)
        if found is None:
            return ()
        values: dict[str, Any] = {
            name: value if type(value) is float else _plain(value) for name, value in found.items()
        }
        path, call, index = (
            (event.path, 0, event.call) if event.step < 0 else (loop_of(event.path), event.call, event.step)
        )
        point = event.path if self._events_per_row == 1 else ""
        key = (point or path, event.lane, event.outer, call, event.device if self._merges is None else 0)
        began, row, seen = self._open.pop(key, _NONE)
        if self._merges is not None and row is not None and event.device not in row.devices:
            self._open[key] = (began, row, seen)
            if self._merges(row, values):
                row.devices |= {event.device}
                return ()
            key = (*key[:-1], event.device)
            began, row, seen = self._open.pop(key, _NONE)
        step = values.pop("step", None)
        if row is not None and began == index:
            self._open[key] = (index, row, seen + 1)
            return self._more(row, event, values, step, seen + 1)
        place = (path, index if step is None else step, event.total, event.lane, event.outer, call, event.time)
        new = Row(*place, values, point, index, frozenset((event.device,)))
        new.series = key
        new.between = self._between is not None and self._between(new, step)
        is_alone = self._events_per_row == 1 or new.between
        self._open[key] = (index, new, self._events_per_row if is_alone else 1)
        if len(self._open) > SERIES_KEPT:
            self._forget()
        self.kept.append(new)
        self.count += 1
        done = (row,) if row is not None and seen < self._events_per_row else ()
        return (*done, new) if is_alone else done

    def _more(self, row: Row, event: TapEvent, values: dict[str, Any], step: int | None, seen: int) -> Sequence[Row]:
        """What another event tells of a row."""
        row.values.update(values)
        row.step = row.step if step is None else step
        row.total = row.total if event.total is None else event.total
        return (row,) if seen == self._events_per_row else ()

    def _forget(self) -> None:
        """Forget the series that have been silent longest, but for what is incomplete there."""
        newest = SERIES_KEPT // 2
        for key, (_, _, seen) in list(self._open.items())[:-newest]:
            if seen >= self._events_per_row:
                del self._open[key]

    def close(self) -> list[Row]:
        """The rows that were not complete: no event will come any more."""
        left = [row for _, row, seen in self._open.values() if seen < self._events_per_row]
        self._open.clear()
        return left


@functools.lru_cache(maxsize=1024)
def loop_of(path: str) -> str:
    """The address of the innermost loop that an address is in, or is."""
    parts = path.split("/")
    while len(parts) > 1 and not parts[-1].startswith(_LOOPS):
        parts.pop()
    return "/".join(parts)


def _plain(value: Any) -> Any:
    """A scalar as Python has it; anything else as it is."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def variant(event: TapEvent, **changes: Any) -> TapEvent:
    """An event with some of its fields changed, as of `dataclasses.replace`, which takes many times as long."""
    new = object.__new__(TapEvent)
    vars(new).update(vars(event), **changes)
    return new


def table(rows: Iterable[Row], first: Sequence[str] = ()) -> pd.DataFrame:
    """Rows as a table: `path`, `step`, `lane`, `outer`, `call`, then each column; NaN where a row has nothing.

    Args:
      rows: the rows.
      first: columns that come before the others, and are there even if no row has them.

    Raises:
      ImportError: without pandas.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - an extra: importing jaxtap must not need it
    except ImportError as error:
        raise ImportError("df() needs pandas: pip install 'jaxtap-core[pandas]'. Without it, use rows.") from error
    rows = list(rows)
    places: dict[str, list[Any]] = {
        "path": [row.path for row in rows],
        "step": [row.step for row in rows],
        "lane": [row.lane[0] if len(row.lane) == 1 else row.lane or None for row in rows],
        "outer": [row.outer[0] if len(row.outer) == 1 else row.outer or None for row in rows],
        "call": [row.call for row in rows],
    }
    if any(min(row.devices) for row in rows):
        places["device"] = [min(row.devices) for row in rows]
    names = dict.fromkeys([*first, *(name for row in rows for name in row.values)])
    return pd.DataFrame(places | {name: [row[name] for row in rows] for name in names})
