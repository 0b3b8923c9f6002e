"""Branches that only some lanes take: what is told of each lane is what is told when it runs alone."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap

X = jnp.array([0.3, -0.2, 1.4, -3.0, 2.2])


def thrice(c: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) + 0.1, c)


def twice(c: Any) -> Any:
    return lax.scan(lambda a, _: (a * jnp.cos(a), a), c, None, length=2)[0]


def until(c: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * jnp.cos(s[1])), (0, c))[1]


def outermost(x: Any) -> Any:
    return lax.cond(x > 0, thrice, until, x) + lax.cond(x > 1, thrice, until, x)


def without_loops(x: Any) -> Any:
    return lax.cond(x > 0, lambda a: jnp.sin(a), lambda a: tap.mark("other", jnp.cos(a)), x)


def in_a_scan(x: Any) -> Any:
    return lax.scan(lambda c, t: (lax.cond(c > 0, thrice, until, c) - t, c), x, jnp.arange(3.0))


def in_a_while(x: Any) -> Any:
    def body(s: Any) -> Any:
        return s[0] + 1, lax.cond(s[1] > 0, thrice, twice, s[1]) - 0.4

    return lax.while_loop(lambda s: s[0] < jnp.abs(x) * 2, body, (0, x))


def in_a_branch(x: Any) -> Any:
    def inner(a: Any) -> Any:
        return lax.cond(a > -1, thrice, until, a)

    return lax.switch(jnp.clip(x.astype(jnp.int32), 0, 2), [inner, until, thrice], x)


def in_a_checkpoint(x: Any) -> Any:
    return jax.checkpoint(lambda a: lax.cond(a > 0, thrice, twice, a))(x)


def told(rec: tap.FlightRecorder, lane: tuple[int, ...] = ()) -> Any:
    return collections.Counter((e.path, e.kind, e.step, e.total, e.outer, lane + e.lane) for e in rec.events)


LENSES: dict[str, dict[str, Any]] = {
    "everything": {"taps": [tap.on(["sin", "cos"])], "select_ys": tuple},
    "sampled": {"sample_every": 2},
    "kept": {"last": 1},
}


@pytest.mark.parametrize(("jit", "lens"), [(False, "everything"), *((True, lens) for lens in LENSES)])
@pytest.mark.parametrize("run", [outermost, without_loops, in_a_scan, in_a_while, in_a_branch, in_a_checkpoint])
def test_lane_by_lane(run: Callable[[Any], Any], jit: bool, lens: str) -> None:
    options = LENSES[lens]
    if run is without_loops:
        options = {"taps": [tap.on(["sin", "cos"])]}
    mapped = jax.jit(jax.vmap(run)) if jit else jax.vmap(run)
    bare = mapped(X)
    with tap.record(**options) as rec:
        found = mapped(X)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(bare), jax.tree.leaves(found), strict=True))
    alone: Any = collections.Counter()
    single = jax.jit(run)
    for i, x in enumerate(X):
        with tap.record(**options) as one:
            single(x)
        alone += told(one, (i,))
    assert told(rec) == alone
    assert rec.report().ok and rec.report().expected == len(rec.events)


@pytest.mark.parametrize("run", [in_a_checkpoint, lambda x: lax.scan(lambda c, t: (in_a_checkpoint(c) - t, c), x, X)])
def test_gradients(run: Callable[[Any], Any]) -> None:
    slope = jax.vmap(jax.grad(lambda x: sum(map(jnp.sum, jax.tree.leaves(run(x))))))
    bare = slope(X)
    with tap.record(taps=[tap.on(["sin", "cos"])], ops=()) as rec:
        found = slope(X)
    assert np.array_equal(bare, found)
    alone: Any = collections.Counter()
    for i, x in enumerate(X):
        with tap.record(taps=[tap.on(["sin", "cos"])], ops=()) as one:
            jax.grad(lambda x: sum(map(jnp.sum, jax.tree.leaves(run(x)))))(x)
        alone += told(one, (i,))
    assert told(rec) == alone


def test_vmap_inside_a_body() -> None:
    """Two `cond`s of one body are two boundaries, as when they are not mapped."""

    def body(c: Any, t: Any) -> Any:
        for low in (0.0, 0.5):
            c = jax.vmap(lambda a, low=low: lax.cond(a > low, thrice, until, a))(c)
        return lax.fori_loop(0, 1, lambda i, a: a - t, c), None

    with tap.record() as rec:
        lax.scan(body, X, jnp.arange(2.0))
    branches = {f"scan[0]/cond[{i}]/{loop}" for i in (0, 1) for loop in ("b0/while[0]", "b1/scan[0]")}
    assert {event.path for event in rec.events} == {"scan[0]", "scan[0]/scan[2]", *branches}
    first = collections.Counter(
        e.lane for e in rec.events if e.path == "scan[0]/cond[0]/b1/scan[0]" and e.outer == (0,)
    )
    assert first == {(i,): 3 for i in np.flatnonzero(X > 0.0)}


def test_nested_vmap_where_the_inner_axis_alone_chooses() -> None:
    def run(x: Any, y: Any) -> Any:
        return lax.cond(x > 0, thrice, twice, x * y)

    with tap.record() as rec:
        jax.vmap(jax.vmap(run, in_axes=(0, None)), in_axes=(None, 0))(X, jnp.arange(5.0))
    taken = {path: {e.lane for e in rec.events if e.path == path} for path in {e.path for e in rec.events}}
    assert taken["cond[0]/b1/scan[0]"] == {(i, j) for i in range(5) for j in np.flatnonzero(X > 0)}
    assert taken["cond[0]/b0/scan[0]"] == {(i, j) for i in range(5) for j in np.flatnonzero(X <= 0)}


def test_collectives_over_the_mapped_axis() -> None:
    def run(x: Any) -> Any:
        return lax.cond(x > 0, lambda a: thrice(a + lax.psum(a, "i")), lambda a: lax.pmax(twice(a), "i"), x)

    mapped = jax.jit(jax.vmap(run, axis_name="i"))
    bare = mapped(X)
    with tap.record() as rec:
        assert np.array_equal(mapped(X), bare)
    assert {e.lane for e in rec.events if e.path == "cond[0]/b1/scan[0]"} == {(i,) for i in np.flatnonzero(X > 0)}


def test_a_branch_that_is_not_taken_trips_nothing() -> None:
    """Every lane runs the logarithm; that of a negative number is thrown away."""
    run = jax.vmap(
        lambda x: lax.scan(lambda c, _: (lax.cond(c > 0, jnp.log, lambda a: -a, c), None), x, None, length=2)[0]
    )
    for taps in ([tap.watch_nan("log")], [tap.watch_nan()]):
        with tap.record(taps=taps, raise_on_exit=True) as rec:
            run(X)
        assert not rec.events
