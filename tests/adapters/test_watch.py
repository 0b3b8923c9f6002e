"""What adapters share: a lens with hooks, for whose time alone a library is hooked, and the rows that it makes."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import toolbox
from adapters.toolbox import Faster, Stepper, in_python, in_scan, start, train_step

import jaxtap as tap
from jaxtap.internal import Patch, Row, Trip, Watching


def expected(count: int = 5) -> list[dict[str, float]]:
    rows, state = [], start()
    for t in range(count):
        gradient = jax.grad(toolbox.loss)(state["w"])
        norms = {"gradient": jnp.linalg.norm(gradient), "weights": jnp.linalg.norm(state["w"])}
        rows.append({"step": t} | {name: float(norm) for name, norm in norms.items()})
        state = train_step(state)
    return rows


def told(rows: list[Row]) -> list[dict[str, float]]:
    return [{"step": row.step} | row.values for row in rows]


def assert_equal(rows: list[Row], count: int = 5) -> None:
    for row, right in zip(told(rows), expected(count), strict=True):
        assert row == pytest.approx(right, rel=1e-6)


PROGRAMS = {
    "eager": lambda: in_python(train_step),
    "jit": lambda: in_python(jax.jit(train_step)),
    "donated": lambda: in_python(jax.jit(train_step, donate_argnums=0)),
    "scan": in_scan,
    "jit of scan": jax.jit(in_scan),
    "two jits": lambda: in_python(jax.jit(lambda state: jax.jit(train_step)(state))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_and_bits(name: str) -> None:
    own = vars(Stepper)["advance"]
    bare = PROGRAMS[name]()
    with toolbox.watch() as seen:
        assert vars(Stepper)["advance"] is not own
        result = PROGRAMS[name]()
    assert vars(Stepper)["advance"] is own and "advance" not in vars(Faster)
    assert_equal(seen.rows)
    jax.tree.map(np.testing.assert_array_equal, result, bare)
    jax.tree.map(np.testing.assert_array_equal, PROGRAMS[name](), bare)
    assert len(seen.rows) == 5


def test_compiled_before_it_is_seen_and_nothing_stays() -> None:
    traces = []

    @jax.jit
    def step(state: Any) -> Any:
        traces.append(1)
        return train_step(state)

    in_python(step)
    clean = step.lower(start()).as_text()
    for times in (1, 2):
        with toolbox.watch() as seen:
            in_python(step)
        assert_equal(seen.rows)
        in_python(step)
        assert len(seen.rows) == 5 and len(traces) == 2, times
    assert step.lower(start()).as_text() == clean and not jax.make_jaxpr(step)(start()).effects
    with pytest.warns(tap.JaxtapWarning, match="no loop was seen"), tap.record() as plain:
        in_python(step)
    assert not plain.events


def test_another_lens_neither_sees_the_marks_nor_finds_them_compiled() -> None:
    with tap.record() as around, toolbox.watch() as seen, tap.record() as within:
        in_scan()
    assert [e.kind for e in around.events] == [e.kind for e in within.events] == ["carry"] * 5
    assert_equal(seen.rows)
    with tap.record() as alone:
        in_scan()
    assert {e.kind for e in alone.events} == {"carry"}


def test_two_watches_at_once_each_see_all() -> None:
    own = vars(Stepper)["advance"]
    first, second = toolbox.watch(), toolbox.watch(every_third_only=True)
    first.__enter__()
    second.__enter__()
    in_scan()
    first.__exit__(None, None, None)
    in_scan()
    second.__exit__(None, None, None)
    assert vars(Stepper)["advance"] is own
    assert_equal(first.rows)
    assert [row.step for row in second.rows] == [0, 3, 0, 3]


def test_other_threads_are_left_alone() -> None:
    step = jax.jit(train_step)
    with toolbox.watch() as seen:
        thread = threading.Thread(target=in_python, args=(step,))
        thread.start()
        thread.join()
        in_python(step, 2)
    assert len(seen.rows) == 2
    with toolbox.watch(threads="all") as everything:
        thread = threading.Thread(target=lambda: jax.block_until_ready(in_python(step)))
        thread.start()
        thread.join()
    assert len(everything.rows) == 5


def test_lanes() -> None:
    def run(w: Any) -> Any:
        return jax.lax.scan(lambda s, _: (train_step(s), None), start() | {"w": w}, None, length=3)[0]

    w = jnp.array([[0.7, -1.1, 0.4], [0.1, 0.2, 0.3]])
    with toolbox.watch() as seen:
        jax.vmap(run)(w)
    assert [(row.step, row.lane) for row in seen.rows] == [(i, (lane,)) for i in range(3) for lane in range(2)]
    assert seen.rows[0]["weights"] == pytest.approx(float(jnp.linalg.norm(w[0])))
    assert list(seen.df().columns) == ["path", "step", "lane", "outer", "call", "gradient", "weights"]


def test_wrapping_form() -> None:
    seen = toolbox.watch()
    run = seen(in_python)
    jax.tree.map(np.testing.assert_array_equal, run(jax.jit(train_step)), in_python(jax.jit(train_step)))
    assert_equal(seen.rows)
    inside = toolbox.watch()
    step = jax.jit(inside(train_step))
    in_python(step)
    inside.wait()
    assert_equal(inside.rows)


def test_no_row_is_no_silence() -> None:
    seen_nothing = r"toolbox.watch has seen nothing. It looked for calls of Stepper.advance"
    with pytest.warns(tap.JaxtapWarning, match=seen_nothing), toolbox.watch():
        pass
    with pytest.raises(KeyError, match="boom"), toolbox.watch():
        raise KeyError("boom")
    assert vars(Stepper)["advance"].__name__ == "advance"


def test_two_places_make_two_series() -> None:
    @jax.jit
    def both(states: Any) -> Any:
        a = train_step(states[0])
        return a, Stepper().advance(states[1], jnp.ones(3))

    with toolbox.watch() as seen:
        both((start(), start()))
        both((start(), start()))
        jax.lax.scan(lambda s, _: (both(s), None), (start(), start()), None, length=2)
    assert {row.series[0] for row in seen.rows} == {
        "advance[0]",
        "advance[1]",
        "scan[0]/jit[0]/advance[0]",
        "scan[0]/jit[0]/advance[1]",
    }
    assert [row.path for row in seen.rows][-4:] == ["scan[0]"] * 4


def test_tripwires_say_where_and_when_and_once(capfd: Any) -> None:
    def run(scale: Any) -> Any:
        state = start() | {"w": jnp.array([0.7, -1.1, 0.4]) * scale}
        return jax.lax.scan(lambda s, _: (train_step(s), None), state, None, length=12)[0]

    with toolbox.watch(toolbox.TRIPWIRES) as seen:
        jax.vmap(run)(jnp.array([1.0, jnp.nan]))
    lines = capfd.readouterr().err.splitlines()
    (small,) = [row.step for row in seen.rows if row.lane == (0,) and row["weights"] < 0.5][:1]
    assert lines[0] == "[tap] FAIL scan[0] 0/12 lane (1,): gradient nan"
    assert re.fullmatch(
        rf"\[tap\] FAIL scan\[0\] {small}/12 lane \(0,\): weights 0\.4\d+ are small \(< 0\.5\)", lines[1]
    )
    assert len(lines) == 2 == len(seen.trips) and [trip.tripwire for trip in seen.trips] == ["finite", "small"]


@dataclasses.dataclass(frozen=True)
class OneLater:
    """Tells of a step when the next one is there, as what compares several series must."""

    name: str = "one_later"

    def start(self) -> Watching:
        before: list[Row] = []

        def look(row: Row) -> Iterator[Trip]:
            if row.step == 2:
                yield Trip(self.name, "told of one step later", before[-1])
            before.append(row)

        return look

    def at_once(self, values: Any) -> Any:
        return None


def test_the_line_names_the_step_that_is_told_of(capfd: Any) -> None:
    with toolbox.watch([OneLater()]):
        in_scan()
    assert capfd.readouterr().err == "[tap] FAIL scan[0] 1/5: told of one step later\n"


def test_capacity_and_callbacks() -> None:
    rows: list[Row] = []
    events: list[tap.TapEvent] = []
    with toolbox.watch(capacity=2, on_row=rows.append, on_event=events.append) as seen:
        in_scan()
    assert [row.step for row in seen.rows] == [3, 4] and seen.dropped == 3
    assert_equal(rows)
    assert len(events) == 5
    failing = toolbox.watch(on_row=lambda row: 1 / 0)
    with pytest.warns(tap.JaxtapWarning, match="on_row raised ZeroDivisionError"), failing:
        in_scan()
    assert len(failing.rows) == 5 and failing.report().failures == {"on_row": 5}


def test_patches_come_off_in_any_order_and_leave_others_alone() -> None:
    from jaxtap import _patches  # noqa: PLC0415 - what adapters reach through a watch

    class Base:
        def f(self) -> str:
            return "f"

    class Derived(Base):
        pass

    one = Patch(Derived, "f", lambda f: lambda self: f"1({f(self)})")
    two = Patch(Derived, "f", lambda f: lambda self: f"2({f(self)})")
    _patches.install([one])
    _patches.install([two, one])
    assert Derived().f() == "2(1(f))"
    _patches.uninstall([one])
    _patches.uninstall([one])
    assert Derived().f() == "2(f)" and Base().f() == "f"
    Derived.f = lambda self: "mine"
    _patches.uninstall([two])
    assert Derived().f() == "mine"
