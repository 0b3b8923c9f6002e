"""Tripwires: silent on the device until something happens, then precise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap
from jaxtap._router import settle

SIZES = (4, 2000)
WATCH = tap.watch_nan()


def seen(run: Any, *args: Any, taps: Any = (WATCH,), **lens: Any) -> list[tap.TapEvent]:
    bare = run(*args)
    with tap.record(taps=taps, **lens) as rec:
        result = run(*args)
    for one, other in zip(jax.tree.leaves(bare), jax.tree.leaves(result), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    return list(rec.events)


def logs(x: Any) -> Any:
    return lax.scan(lambda x, _: (jnp.log(x), None), x, None, length=5)[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lambda f: jax.jit(lambda x: jax.jit(f)(x))])
def test_the_equation_that_made_it(size: int, wrap: Any) -> None:
    (event,) = seen(wrap(logs), jnp.full(size, 4.0))
    assert (event.path, event.step, event.total, event.kind) == ("scan[0]/log[0]", 3, 5, "primitive")
    assert event.source.startswith("test_tripwires.py:")
    (operand,) = event.value["operands"]
    assert event.value["nan"] == size and event.value["inf"] == 0
    assert operand["low"] == operand["high"] == pytest.approx(-1.1189, abs=1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_lanes_trip_each_at_its_own_step(size: int) -> None:
    x = jnp.outer(jnp.array([4.0, 1e30, 2.0]), jnp.ones(size))
    events = seen(jax.jit(jax.vmap(logs)), x)
    assert [(e.step, e.lane) for e in events] == [(2, (2,)), (3, (0,))]


@pytest.mark.parametrize("size", SIZES)
def test_inside_calls_branches_and_inner_loops(size: int) -> None:
    def called(x: Any) -> Any:
        return lax.scan(lambda c, t: (jax.jit(lambda c: jnp.sqrt(c - 3.0))(c) + t, c), x, jnp.arange(6.0))

    def branched(x: Any) -> Any:
        def body(c: Any, i: Any) -> Any:
            return lax.cond(i == 2, lambda c: jnp.log(-c), lambda c: c + 1.0, c), None

        return lax.scan(body, x, jnp.arange(5))

    def nested(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            return lax.fori_loop(0, 3, lambda i, c: jnp.log(c) + 0.1, c) + t, None

        return lax.scan(body, x, jnp.arange(4.0))

    for run, x, path, step, outer in (
        (called, 8.0, "scan[0]/jit[0]/sqrt[0]", 1, ()),
        (branched, 1.0, "scan[0]/cond[0]/b1/log[0]", 2, ()),
        (nested, 20.0, "scan[0]/scan[0]/log[0]", 1, (1,)),
    ):
        events = seen(jax.jit(run), jnp.full(size, x))
        assert [(e.path, e.step, e.outer) for e in events] == [(path, step, outer)]


@pytest.mark.parametrize("size", SIZES)
def test_a_loop_that_was_given_it(size: int) -> None:
    (event,) = seen(
        lambda xs: lax.scan(lambda c, x: (c + x, None), jnp.zeros(size), xs), jnp.array([1.0, jnp.nan, 2.0])
    )
    assert (event.path, event.step, event.kind, list(event.value)) == ("scan[0]", 1, "carry", ["x"])


def test_a_loop_without_a_state() -> None:
    with tap.record(taps=[tap.watch_nan()]) as rec:
        lax.map(jnp.log, jnp.array([1.0, -1.0, 2.0]))
    assert [(event.path, event.step) for event in rec.events] == [("scan[0]/log[0]", 1)]


def test_infinity_that_is_meant() -> None:
    """A running minimum starts at infinity, and an attention mask holds it: neither is made by an equation."""

    def run(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            weights = jax.nn.softmax(jnp.where(jnp.arange(4) < 2, x, -jnp.inf))
            return (jnp.minimum(c[0], x), c[1] + weights.sum()), None

        return lax.scan(body, (jnp.inf, 0.0), xs)[0]

    assert seen(jax.jit(run), jnp.arange(1.0, 4.0)) == []


@pytest.mark.parametrize("size", SIZES)
def test_while_and_its_lanes(size: int) -> None:
    def run(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 6, lambda c: (c[0] + 1, jnp.sqrt(c[1] - 1.0)), (0, x))

    events = seen(jax.jit(jax.vmap(run)), jnp.outer(jnp.array([5.0, 500.0]), jnp.ones(size)))
    assert [(e.path, e.step, e.lane) for e in events] == [("while[0]/sqrt[0]", 3, (0,)), ("while[0]/sqrt[0]", 4, (1,))]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unroll", [1, 2])
def test_of_ones_own(size: int, unroll: int) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda x, _: (x * 3.0, x.sum()), x, None, length=4, unroll=unroll)

    x = jnp.ones(size)
    carry = seen(run, x, taps=[tap.trip(lambda leaves: leaves["x"] > 20.0, select=lambda leaves: leaves[0].max())])
    assert [(e.path, e.step, e.kind, float(e.value)) for e in carry] == [
        ("scan[0]", 2, "carry", 27.0),
        ("scan[0]", 3, "carry", 81.0),
    ]
    output = seen(run, x, taps=[tap.trip(lambda leaves: leaves[0] > 8.0 * size, on="output")])
    assert [(e.step, e.kind) for e in output] == [(2, "output"), (3, "output")]
    equation = seen(
        run, x, taps=[tap.trip(lambda outs: outs[0] > 20.0, on="mul", where=lambda path: path == "scan[0]/mul[0]")]
    )
    assert [(e.step, e.kind) for e in equation] == [(2, "primitive"), (3, "primitive")]
    assert seen(run, x, taps=[tap.trip(lambda leaves: leaves[0] < 0.0)]) == []


def test_a_named_tripwire_records_trips_only() -> None:
    events = seen(jax.jit(logs), jnp.full(4, 4.0), taps=[tap.watch_nan("log")])
    assert [(e.path, e.step, bool(e.value)) for e in events] == [("scan[0]/log[0]", i, False) for i in (3, 4)]
    with tap.record(taps=[tap.watch_nan("log")], select=lambda leaves: ()) as rec:
        logs(4.0)
    assert {e.kind for e in rec.events} == {"carry", "primitive"}


def test_nothing_crosses_while_all_is_well() -> None:
    crossings: list[Any] = []
    for size in SIZES:
        g, rec = tap.record(logs, taps=[WATCH, tap.watch_nan("log"), tap.trip(lambda leaves: leaves[0] < -5.0)])
        lens = rec.account.__self__
        lens.arrive_at_point = lens.arrive_from_hunt = lens.arrive = lambda *args: crossings.append(args)
        jax.jit(g)(jnp.full(size, 1e38))
        assert rec.report().ok
    assert crossings == []


def test_raise_on_exit() -> None:
    with (
        pytest.raises(tap.Tripped, match=r"fired at scan\[0\]/log\[0\] 3/5") as caught,
        tap.record(taps=[WATCH], raise_on_exit=True),
    ):
        result = logs(4.0)
    assert np.isnan(result)
    assert [e.path for e in caught.value.events] == ["scan[0]/log[0]"]
    with tap.record(taps=[WATCH], raise_on_exit=True):
        logs(1e30)
    with pytest.raises(KeyError), tap.record(taps=[WATCH], raise_on_exit=True):
        logs(4.0)
        raise KeyError
    with pytest.raises(ValueError, match="raise_on_exit is for the block form"):
        tap.record(logs, raise_on_exit=True)


def test_lines(capfd: Any) -> None:
    line = "[tap] FAIL scan[0]/log[0] 3/5: NaN/Inf: test_tripwires.py:"
    tap.verbose(logs, taps=[WATCH])(4.0)
    tap.verbose(logs, taps=[tap.trip(lambda leaves: leaves[0] < 0.0, label="negative", once=True)])(4.0)
    settle()
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith(line) and first.endswith("operands in [-1.119, -1.119]")
    assert second == "[tap] FAIL scan[0] 2/5: negative"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: tap.watch_nan(output=1), ValueError, "output= chooses among the outputs of a primitive"),
        (lambda: tap.watch_nan("sin", backward=True), ValueError, "backward=True looks at the cotangents"),
        (lambda: tap.trip("x"), TypeError, "predicate must be a traced function"),
        (lambda: tap.trip(lambda leaves: True, on=()), TypeError, "prim must be the name"),
    ],
)
def test_wrong_arguments(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


@pytest.mark.parametrize("size", [3, 600])
def test_what_turns_finite_again_in_an_inner_loop(size: int) -> None:
    """A trial point outside of the domain, which the loop itself steps back from."""

    def back_off(i: Any, x: Any) -> Any:
        tried = jnp.log(x - jnp.asarray(i, x.dtype))
        return jnp.where(jnp.isfinite(x), tried, 2.5)

    def run(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.fori_loop(0, 3, back_off, c) * 0.0 + 0.5, None), x, None, length=2)[0]

    x = jnp.full(size, 0.5)
    assert not seen_of(jax.jit(run), x, tap.watch_nan())
    events = seen_of(jax.jit(run), x, tap.watch_nan(inner=True))
    assert [(e.path, e.step, e.outer) for e in events] == [("scan[0]/scan[0]/log[0]", 1, (i,)) for i in (0, 1)]


def seen_of(f: Any, x: Any, watch: Any) -> list[tap.TapEvent]:
    """The events of one tripwire; the result is that without it."""
    bare = f(x)
    with tap.record(taps=[watch]) as rec:
        assert (f(x) == bare).all()
    return list(rec.events)


def test_inner_is_for_the_state_of_loops() -> None:
    with pytest.raises(ValueError, match="inner=True looks at the state of inner loops"):
        tap.watch_nan("log", inner=True)
