"""Rules of tripwires that need more than one number of one step: of several steps, or of several chains."""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtap.internal import Row, Trip, Tripwire, Watching
from jaxtap_blackjax._columns import WINDOW_END

TARGET, CHEES_TARGET = 0.8, 0.651


class _Host:
    """A tripwire that one step alone does not decide."""

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """None: it takes the host."""
        return None


@dataclasses.dataclass(frozen=True)
class Once(_Host):
    """Another tripwire that tells of each chain once, the first time.

    Attributes:
      wire: the other.
    """

    wire: Tripwire

    @property
    def name(self) -> str:
        """What it is called."""
        return self.wire.name

    def start(self) -> Watching:
        """Begin to look at rows."""
        look_at, told = self.wire.start(), set[Any]()

        def look(row: Row) -> Iterable[Trip]:
            trips = [trip for trip in look_at(row) if row.series not in told]
            if trips:
                told.add(row.series)
            return trips[:1]

        return look

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As the other."""
        return self.wire.at_once(values)


@dataclasses.dataclass(frozen=True)
class MeanOutside(_Host):
    """The mean of a column over a window is off its target.

    Attributes:
      name: what it is called.
      column: the column.
      target: None for BlackJAX's default.
      tolerance: how far off it may be.
      window: in steps.
    """

    name: str
    column: str
    target: float | None
    tolerance: float
    window: int

    def start(self) -> Watching:
        """Begin to look at rows."""
        last: dict[Any, collections.deque[float]] = collections.defaultdict(
            lambda: collections.deque(maxlen=self.window)
        )
        bad: set[Any] = set()

        def look(row: Row) -> Iterable[Trip]:
            if self.column not in row.values:
                return ()
            values, key = last[row.series], row.series
            values.append(float(row.values[self.column]))
            if len(values) < self.window:
                return ()
            mean, target = math.fsum(values) / self.window, self._target(row)
            if abs(mean - target) <= self.tolerance:
                bad.discard(key)
                return ()
            if key in bad:
                return ()
            bad.add(key)
            says = f"acceptance rate {mean:.2f} over {self.window} steps is off its target {target:g}"
            return (Trip(self.name, says, row, self.column),)

        return look

    def _target(self, row: Row) -> float:
        if self.target is not None:
            return self.target
        return CHEES_TARGET if "trajectory_length" in row.values else TARGET


@dataclasses.dataclass(frozen=True)
class Stalled(_Host):
    """A column has kept its first value until some share of the loop's steps.

    Attributes:
      name: what it is called.
      column: the column.
      after: that share.
    """

    name: str
    column: str
    after: float

    def start(self) -> Watching:
        """Begin to look at rows."""
        first: dict[Any, Any] = {}
        told: set[Any] = set()
        adapted: set[Any] = set()

        def look(row: Row) -> Iterable[Trip]:
            if row.series in told or self.column not in row.values or "stage" not in row.values or row.total is None:
                return ()
            now, key = row.values[self.column], row.series
            began = first.setdefault(key, now)
            if row.values["stage"] == WINDOW_END:
                adapted.add(key)
            if now != began:
                told.add(key)
            elif key in adapted or (row.step >= self.after * row.total and row.step == row.total - 1):
                told.add(key)
                return (Trip(self.name, f"mass matrix has not moved in {row.step + 1} steps", row, self.column),)
            return ()

        return look


@dataclasses.dataclass(frozen=True)
class Apart(_Host):
    """One chain's step size or log-density is apart from the median of all chains, step after step.

    Attributes:
      name: what it is called.
      factor: times the median step size, or such a part of it.
      spread: median absolute deviations of the log-density below the median.
      at_least: chains that it takes.
      steps: how many steps in a row.
    """

    name: str
    factor: float
    spread: float
    at_least: int
    steps: int

    def start(self) -> Watching:
        """Begin to look at rows."""
        waiting: dict[Any, tuple[int, dict[Any, Row]]] = {}
        in_a_row: dict[Any, int] = {}

        def look(row: Row) -> Iterable[Trip]:
            if not row.lane:
                return ()
            key = (row.path, row.outer, row.call, row.lane[:-1])
            step, rows = waiting.get(key, (None, {}))
            if row.step == step:
                rows[row.lane] = row
                return ()
            waiting[key] = (row.step, {row.lane: row})
            return self._compared(rows, in_a_row)

        return look

    def _compared(self, rows: Mapping[Any, Row], in_a_row: dict[Any, int]) -> list[Trip]:
        """What is apart among the rows of all chains at one step."""
        if len(rows) < self.at_least:
            return []
        trips: list[Trip] = []
        for column, says in (("step_size", self._step_size), ("logdensity", self._logdensity)):
            values = {lane: float(row.values[column]) for lane, row in rows.items() if column in row.values}
            apart = says(values) if values else {}
            if not apart and not in_a_row:
                continue
            for lane in values:
                key = (rows[lane].series, column)
                if lane not in apart:
                    in_a_row.pop(key, None)
                    continue
                in_a_row[key] = in_a_row.get(key, 0) + 1
                if in_a_row[key] == self.steps:
                    trips.append(Trip(self.name, f"{apart[lane]}, {self.steps} steps in a row", rows[lane], column))
        return trips

    def _step_size(self, values: Mapping[Any, float]) -> dict[Any, str]:
        """What is said of each chain that is apart."""
        middle = _median(values)
        low, high = middle / self.factor, middle * self.factor
        return {
            lane: f"step size {value:.1e} is apart from the other chains' {middle:.1e}"
            for lane, value in values.items()
            if not math.isfinite(value) or not low <= value <= high
        }

    def _logdensity(self, values: Mapping[Any, float]) -> dict[Any, str]:
        """Likewise."""
        middle = _median(values)
        # The spread counts as no less than 1, so that within this nothing is apart.
        if all(middle - self.spread <= value < math.inf for value in values.values()):
            return {}
        deviation = statistics.median([abs(v - middle) for v in values.values() if math.isfinite(v)] or [0.0])
        low = middle - self.spread * max(deviation, 1.0)
        return {
            lane: f"logdensity {value:.3g} is apart from the other chains' {middle:.3g}"
            for lane, value in values.items()
            if not math.isfinite(value) or value < low
        }


def _median(values: Mapping[Any, float]) -> float:
    return statistics.median([v for v in values.values() if math.isfinite(v)] or [math.nan])
