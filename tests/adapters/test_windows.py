"""Rules over a window, against what they say they are: every value of every window looked at anew."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtap import TapEvent
from jaxtap.internal import NonFinite, Often, OnColumn, Outside, Panel, Row, Rows, Spike, Trip, Unchanged

COARSE = st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0, -1.0, 3e30, math.nan, math.inf, -math.inf])
# Not floats as such: where a library flushes subnormal numbers to zero, hypothesis makes none.
FINE = st.integers(-64_000, 64_000).map(lambda n: n / 64) | st.integers(900, 1100).map(lambda n: n / 1000)
VALUES = st.lists(COARSE | FINE, max_size=60)
WINDOWS = st.integers(1, 9)


def finite(values: list[float]) -> list[float]:
    return [v for v in values if math.isfinite(v)]


def spike(values: list[float], window: int) -> bool:
    before = finite(values[:-1])[-window:]
    return len(before) >= min(3, window) and values[-1] > 2.0 * statistics.median(before)


def often(values: list[float], window: int) -> bool:
    last = values[-window:]
    return len(last) == window and sum(v > 1.0 for v in last) >= 0.6 * window


def unchanged(values: list[float], window: int, relative: float = 0.0) -> bool:
    last = values[-window:]
    is_full = len(last) == window and len(finite(last)) == window
    return is_full and max(last) - min(last) <= relative * max(map(abs, last))


RULES: dict[str, tuple[Callable[[int], Any], Callable[[list[float], int], bool]]] = {
    "spike": (lambda window: Spike(2.0, window, at_least=min(3, window)), spike),
    "often": (lambda window: Often(Outside(high=1.0), window, 0.6), often),
    "unchanged": (Unchanged, unchanged),
    "nearly": (lambda window: Unchanged(window, 0.05), lambda values, window: unchanged(values, window, 0.05)),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=150, deadline=None)
@given(values=VALUES, window=WINDOWS)
def test_rules_over_a_window(name: str, values: list[float], window: int) -> None:
    make, slow = RULES[name]
    judge = make(window).fresh()
    assert [judge(v) for v in values] == [slow(values[: i + 1], window) for i in range(len(values))]


@settings(max_examples=200, deadline=None)
@given(
    energies=VALUES,
    window=st.integers(2, 9),
)
def test_energy_fraction(energies: list[float], window: int) -> None:
    rules = pytest.importorskip("jaxtap_blackjax._energy")
    judge, seen = rules.Energies(window), []
    for energy in energies:
        judge.push(energy)
        seen.append(energy)
        last = seen[-window:]
        assert judge.is_full == (len(last) == window and len(finite(last)) == window)
        if judge.is_full:
            spread = statistics.pvariance(last)
            moved = statistics.fmean((b - a) ** 2 for a, b in itertools.pairwise(last))
            # Energies of less than 1e-5 are cut off at the twelfth place.
            if spread > 1e-6:
                assert judge.fraction == pytest.approx(moved / spread, rel=1e-5)


def rows(values: list[float]) -> list[Row]:
    return [Row("scan[0]", i, None, (i % 2,), (), 0, 0.0, {"x": v, "x/a": -v}) for i, v in enumerate(values)]


WIRES = (
    OnColumn("not finite", "x*", NonFinite(), "{layer} {value}"),
    OnColumn("large", "x", Outside(high=1.0), "{value}"),
    OnColumn("spike", "x/*", Spike(2.0, 4, 2), "{value}"),
    OnColumn("late", "x", Outside(low=1.0), "{value}", where=lambda row: row.step > 5),
)


def described(trips: list[Trip]) -> list[Any]:
    return [(trip.tripwire, trip.column, trip.row.step, trip.message) for trip in trips]


@settings(max_examples=60, deadline=None)
@given(values=VALUES)
def test_a_panel_is_its_tripwires_one_after_the_other(values: list[float]) -> None:
    together = Panel(WIRES)
    looks = [wire.start() for wire in WIRES]
    for row in rows(values):
        assert described(together(row)) == described([trip for look in looks for trip in look(row)])


def test_series_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_rows", "_tripwires"):
        monkeypatch.setattr(f"jaxtap.{module}.SERIES_KEPT", 10)
    panel = Panel(WIRES)
    made = Rows(lambda event: event.value, capacity=3)
    for i in range(200):
        events = (TapEvent("scan[0]", 0, {"x": 0.0}, call=i, lane=(0,)), TapEvent("scan[0]", i, {"x": 0.0}, lane=(1,)))
        for row in [row for event in events for row in made.add(event)]:
            panel(row)
    assert made.count == 400 and len(made.kept) == 3
    assert len(made._open) <= 10 and len(panel._plans) <= 10
    assert ("scan[0]", (1,), (), 0, 0) in panel._plans


class Unfit:
    """A rule that cannot begin, nor be hashed."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def fresh(self) -> Any:
        return 1 / 0

    def at_once(self, value: Any) -> Any:
        return None


def test_a_tripwire_that_fails_keeps_none_of_the_others_from_looking() -> None:
    errors: list[Exception] = []
    broken = OnColumn("broken", "x", Outside(high=0.0), "{value} {nothing}")
    panel = Panel((broken, WIRES[1]), errors.append)
    assert described(panel(rows([2.0])[0])) == [("large", "x", 0, "2.0")]
    assert [type(error) for error in errors] == [KeyError]
    unfit = OnColumn("unfit", "x", Unfit(), "{value}")
    panel = Panel((unfit, WIRES[1], WIRES[1]), errors.append)
    assert described(panel(rows([2.0])[0])) == [("large", "x", 0, "2.0")] * 2
    assert [type(error) for error in errors[1:]] == [ZeroDivisionError]
    with pytest.raises(KeyError, match="nothing"):
        Panel((broken,))(rows([2.0])[0])
