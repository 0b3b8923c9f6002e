"""Rules of tripwires that need more than one number of one step: of several steps, or of several chains."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtap.internal import Judge, Row, Trip, Tripwire, Watching

TARGET, CHEES_TARGET = 0.8, 0.651


@dataclasses.dataclass(frozen=True)
class EnergyFraction:
    """Bad is when the E-BFMI of the last `window` energies, `mean(diff(E)**2) / var(E)`, is below `threshold`."""

    threshold: float
    window: int

    def fresh(self) -> Judge:
        """A judge of one chain."""
        last: collections.deque[float] = collections.deque(maxlen=self.window)

        def judge(energy: float) -> bool:
            last.append(energy)
            if len(last) < self.window or not all(map(math.isfinite, last)):
                return False
            values = list(last)
            moved = statistics.fmean((b - a) ** 2 for a, b in itertools.pairwise(values))
            spread = statistics.pvariance(values)
            return spread > 0 and moved / spread < self.threshold

        return judge

    def at_once(self, value: Any) -> Any:
        """One energy tells nothing."""
        return None


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
            for trip in look_at(row):
                if row.series not in told:
                    told.add(row.series)
                    yield trip

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
        last: dict[Any, collections.deque[float]] = {}
        bad: set[Any] = set()

        def look(row: Row) -> Iterable[Trip]:
            if self.column not in row.values:
                return
            values = last.setdefault(row.series, collections.deque(maxlen=self.window))
            values.append(float(row[self.column]))
            target = self._target(row)
            mean = statistics.fmean(values)
            if len(values) < self.window or abs(mean - target) <= self.tolerance:
                bad.discard(row.series)
            elif row.series not in bad:
                bad.add(row.series)
                says = f"acceptance rate {mean:.2f} over {self.window} steps is off its target {target:g}"
                yield Trip(self.name, says, row, self.column)

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
            if self.column not in row.values or "stage" not in row.values or row.total is None:
                return
            now, key = row[self.column], row.series
            began = first.setdefault(key, now)
            if row["stage"] == "window end":
                adapted.add(key)
            if now != began or key in told:
                told.add(key)
            elif key in adapted or (row.step >= self.after * row.total and row.step == row.total - 1):
                told.add(key)
                yield Trip(self.name, f"mass matrix has not moved in {row.step + 1} steps", row, self.column)

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
        in_a_row: collections.Counter[Any] = collections.Counter()

        def look(row: Row) -> Iterable[Trip]:
            if not row.lane:
                return
            key = (row.path, row.outer, row.call, row.lane[:-1])
            step, rows = waiting.get(key, (row.step, {}))
            if row.step != step:
                yield from self._compared(rows, in_a_row)
                rows = {}
            rows[row.lane] = row
            waiting[key] = (row.step, rows)

        return look

    def _compared(self, rows: Mapping[Any, Row], in_a_row: collections.Counter[Any]) -> Iterable[Trip]:
        """What is apart among the rows of all chains at one step."""
        if len(rows) < self.at_least:
            return
        for column, says in (("step_size", self._step_size), ("logdensity", self._logdensity)):
            values = {lane: float(row[column]) for lane, row in rows.items() if column in row.values}
            for lane, message in says(values).items():
                key = (rows[lane].series, column)
                in_a_row[key] = in_a_row[key] + 1 if message else 0
                if in_a_row[key] == self.steps:
                    yield Trip(self.name, f"{message}, {self.steps} steps in a row", rows[lane], column)

    def _step_size(self, values: Mapping[Any, float]) -> dict[Any, str]:
        middle = _median(values)
        said: dict[Any, str] = {}
        for lane, value in values.items():
            apart = not math.isfinite(value) or not middle / self.factor <= value <= middle * self.factor
            said[lane] = f"step size {value:.1e} is apart from the other chains' {middle:.1e}" if apart else ""
        return said

    def _logdensity(self, values: Mapping[Any, float]) -> dict[Any, str]:
        middle = _median(values)
        deviation = statistics.median([abs(v - middle) for v in values.values() if math.isfinite(v)] or [0.0])
        said: dict[Any, str] = {}
        for lane, value in values.items():
            apart = not math.isfinite(value) or value < middle - self.spread * max(deviation, 1.0)
            said[lane] = f"logdensity {value:.3g} is apart from the other chains' {middle:.3g}" if apart else ""
        return said


def _median(values: Mapping[Any, float]) -> float:
    return statistics.median([v for v in values.values() if math.isfinite(v)] or [math.nan])
