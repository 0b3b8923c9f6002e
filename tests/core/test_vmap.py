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
