"""Lanes: each step of each lane that runs it, once, whatever the loops around it do."""

from __future__ import annotations

import collections
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap as tap


def program(v: Any, n: Any) -> Any:
    """A while of `n` steps with a scan of two in it."""

    def body(s: Any) -> Any:
        i, c = s
        c = lax.scan(lambda c, x: (c + x, c), c, jnp.arange(2.0))[0]
        return i + 1, c * 1.5

    return lax.while_loop(lambda s: s[0] < n, body, (0, v))


def expected(lanes: dict[tuple[int, ...], int], every: int = 1) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = {}
    for lane, n in lanes.items():
        for step in range(n):
            if step % every == 0:
                found["while[0]", lane, step, ()] = 1
            for inner in range(0, 2, every):
                found["while[0]/scan[0]", lane, inner, (step,)] = 1
    return found


def seen(rec: tap.FlightRecorder) -> dict[tuple[Any, ...], int]:
    return dict(collections.Counter((e.path, e.lane, e.step, e.outer) for e in rec.events))


@pytest.mark.parametrize("every", [1, 2])
def test_finished_lanes_are_silent(every: int) -> None:
    with tap.record(sample_every=every) as rec:
        jax.vmap(program)(jnp.arange(3.0), jnp.array([1, 4, 0]))
    assert seen(rec) == expected({(0,): 1, (1,): 4}, every)
    assert rec.report().ok and rec.report().expected == len(rec.events)


@pytest.mark.parametrize(
    ("axes", "lanes"),
    [
        (((0, None), (0, 0)), {(i, j): n for i, n in enumerate([1, 3]) for j in range(3)}),
        (((None, 0), (0, None)), {(i, j): n for i in range(2) for j, n in enumerate([1, 3, 5])}),
    ],
    ids=["condition over the outer vmap", "condition over the inner vmap"],
)
def test_nested_vmap(axes: Any, lanes: Any) -> None:
    inner, outer = axes
    if outer == (0, 0):
        args: Any = (jnp.arange(6.0).reshape(2, 3), jnp.array([1, 3]))
    else:
        args = (jnp.arange(2.0), jnp.array([1, 3, 5]))
    with tap.record() as rec:
        jax.vmap(jax.vmap(program, in_axes=inner), in_axes=outer)(*args)
    assert seen(rec) == expected(lanes)


def test_select_sees_one_lane() -> None:
    shapes: list[Any] = []

    def select(leaves: Any) -> Any:
        shapes.append(leaves[0].shape)
        return leaves[0].sum()

    def f(v: Any, w: Any) -> Any:
        return lax.scan(lambda c, x: (w @ c + x, w @ c), v, jnp.arange(3.0))

    w = jnp.eye(4)
    with tap.record(select=select, select_ys=lambda leaves: leaves[0]) as rec:
        _, ys = jax.vmap(f, in_axes=(1, None), out_axes=0)(jnp.arange(12.0).reshape(4, 3), w)
    assert set(shapes) == {(4,)}
    for event in rec.events:
        if event.kind == "output":
            assert (event.value == ys[(*event.lane, event.step)]).all()


def test_vmap_inside_a_body_and_axis_name() -> None:
    def body(c: Any, x: Any) -> Any:
        return jax.vmap(lambda a: lax.fori_loop(0, 2, lambda i, b: b + lax.psum(a, "i") + x, a), axis_name="i")(c), None

    with tap.record() as rec:
        lax.scan(body, jnp.arange(3.0), jnp.arange(2.0))
    inner = [e for e in rec.events if "/" in e.path]
    assert {e.path for e in rec.events} == {"scan[0]", "scan[0]/scan[0]"}
    assert {e.lane for e in inner} == {(0,), (1,), (2,)} and len(inner) == 12 and len(rec.events) == 14


# --- lanes= --------------------------------------------------------------------------------------------------

EVERY_KIND: dict[str, Any] = {
    "select_ys": tuple,
    "select_backward": tuple,
    "taps": [tap.on("cos"), tap.trip(lambda leaves: leaves[-1] > 9.0, label="high")],
}


def waves(v: Any) -> Any:
    """A scan with outputs, a tapped equation and a marked value in it, and an inner loop."""

    def body(c: Any, x: Any) -> Any:
        c = tap.mark("wave", jnp.cos(c), backward=True) + x
        return lax.fori_loop(0, 2, lambda i, a: a * 0.9, c), c

    return lax.scan(body, v, jnp.arange(3.0))


@pytest.mark.parametrize(
    ("lanes", "kept"),
    [
        (2, [2]),
        (-1, [4]),
        (slice(1, None, 2), [1, 3]),
        (slice(None, None, -1), [0, 1, 2, 3, 4]),
        ([3, 0], [0, 3]),
        (range(2), [0, 1]),
        ((4,), [4]),
    ],
)
def test_chosen_lanes_of_every_kind(lanes: Any, kept: list[int]) -> None:
    check_lanes(lanes, kept, None)


def test_chosen_lanes_that_are_kept_on_the_device() -> None:
    check_lanes([3, 0], [0, 3], 2)


@jax.jit
@jax.vmap
@jax.value_and_grad
def waving(v: Any) -> Any:
    last, ys = waves(v)
    return last + ys.sum()


def check_lanes(lanes: Any, kept: list[int], last: int | None) -> None:
    """The events are exactly those of the chosen lanes, and the results are those without a lens."""
    v = jnp.arange(5.0)
    bare = waving(v)
    with tap.record(**EVERY_KIND, last=last) as everything:
        waving(v)
    with tap.record(**EVERY_KIND, last=last, lanes=lanes) as chosen:
        found = waving(v)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(bare), jax.tree.leaves(found), strict=True))

    def told(rec: tap.FlightRecorder) -> Any:
        return collections.Counter(
            (e.path, e.kind, e.step, e.outer, e.lane, str(e.value)) for e in rec.events if e.lane[0] in kept
        )

    assert {event.kind for event in chosen.events} == {"carry", "output", "primitive", "mark", "backward"}
    assert {event.lane for event in chosen.events} == {(i,) for i in kept}
    assert told(chosen) == told(everything)
    assert chosen.report().ok and chosen.report().expected == len(chosen.events)


@pytest.mark.parametrize(
    ("lanes", "kept"),
    [
        (1, {(1, 0), (1, 1), (1, 2)}),
        ((slice(None), 2), {(0, 2), (1, 2)}),
        (([0], [0, 2]), {(0, 0), (0, 2)}),
        ((0, 9), set()),
    ],
)
def test_chosen_lanes_of_nested_vmaps(lanes: Any, kept: set[tuple[int, ...]]) -> None:
    args = (jnp.arange(6.0).reshape(2, 3), jnp.array([2, 3]))
    run = jax.vmap(jax.vmap(program, in_axes=(0, None)))
    if not kept:
        with pytest.warns(tap.JaxtapWarning, match=r"filters \(lanes=\(\[0\], \[9\]\)"), tap.record(lanes=lanes):
            run(*args)
        return
    with tap.record(lanes=lanes) as rec:
        run(*args)
    assert seen(rec) == expected({lane: int(args[1][lane[0]]) for lane in kept})
    assert rec.report().expected == len(rec.events)


def test_chosen_lanes_that_finish_early_and_loops_outside_of_vmap() -> None:
    def run(v: Any, n: Any) -> Any:
        jax.vmap(program)(v, n)
        return lax.scan(lambda c, x: (c + x, None), 0.0, v)[0]

    with tap.record(lanes=[0, 2], sample_every=2) as rec:
        run(jnp.arange(3.0), jnp.array([1, 4, 0]))
    whole = {("scan[1]", (), step, ()): 1 for step in (0, 2)}
    assert seen(rec) == expected({(0,): 1}, 2) | whole
    assert rec.report().ok and rec.report().expected == len(rec.events)


def test_a_nan_in_a_lane_that_is_not_chosen_is_silent() -> None:
    run = jax.vmap(lambda v: lax.scan(lambda c, x: (jnp.log(c) + x, None), v, jnp.ones(2))[0])
    v = jnp.array([-1.0, 9.0, -1.0])
    for taps in ([tap.watch_nan()], [tap.watch_nan("log")]):
        with tap.record(taps=taps, lanes=[1, 2]) as rec:
            run(v)
        assert {event.lane for event in rec.events} == {(2,)}
        with tap.record(taps=taps, lanes=1) as rec:
            run(v)
        assert not rec.events


@pytest.mark.parametrize(
    ("lanes", "error", "says"),
    [
        ("0", TypeError, "lanes must be the index of a lane"),
        (1.5, TypeError, "lanes must be the index of a lane"),
        (True, TypeError, "lanes must be the index of a lane"),
        ([], ValueError, "must not be empty"),
        (slice(0, 4, 0), ValueError, "must not be 0"),
    ],
)
def test_wrong_lanes(lanes: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        tap.record(lanes=lanes)
