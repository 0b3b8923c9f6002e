"""150 events of 150: every way of writing a loop, eager, compiled in the lens, and compiled before it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.lax import scan as captured_scan

import jaxtap as tap

N = 50


def step(c: Any, x: Any) -> tuple[Any, None]:
    return jnp.sin(c) * 0.9 + x, None


def over(scan: Any, c: Any) -> Any:
    return scan(step, c, jnp.arange(float(N)))[0]


def counted(v: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < N, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, v))[1]


def in_custom_jvp(v: Any) -> Any:
    f = jax.custom_jvp(lambda x: over(lax.scan, x))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return f(v)


def in_custom_vjp(v: Any) -> Any:
    f = jax.custom_vjp(lambda x: over(lax.scan, x))
    f.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
    return f(v)


def associative(v: Any) -> Any:
    return lax.scan(lambda c, x: (lax.associative_scan(jnp.add, c) * 0.1 + x, None), v, jnp.arange(float(N)))[0]


def deep(v: Any) -> Any:
    """A scan in a while in a scan: 2 outer steps, 5 middle steps each, 5 inner steps each."""

    def middle(s: Any) -> Any:
        return s[0] + 1, lax.scan(step, s[1], jnp.arange(5.0))[0]

    return lax.scan(lambda c, _: (lax.while_loop(lambda s: s[0] < 5, middle, (0, c))[1], None), v, None, length=2)[0]


WAYS: dict[str, tuple[Any, str]] = {
    "jax.lax.scan": (lambda v: over(jax.lax.scan, v), "scan[0]"),
    "captured scan": (lambda v: over(captured_scan, v), "scan[0]"),
    "fori_loop": (lambda v: lax.fori_loop(0, N, lambda i, c: jnp.sin(c), v), "scan[0]"),
    "lax.map": (lambda v: lax.map(lambda x: v * x, jnp.arange(float(N))), "scan[0]"),
    "while_loop": (counted, "while[0]"),
    "associative_scan": (associative, "scan[0]"),
    "custom_jvp": (in_custom_jvp, "scan[0]"),
    "custom_vjp": (in_custom_vjp, "scan[0]"),
    "checkpoint": (lambda v: jax.checkpoint(lambda x: over(lax.scan, x))(v), "remat[0]/scan[0]"),
    "cond": (
        lambda v: lax.cond(v.sum() < 1e9, lambda x: over(lax.scan, x), lambda x: x, v),
        "cond[0]/b1/scan[0]",
    ),
    "nested jit": (lambda v: jax.jit(jax.jit(lambda x: over(lax.scan, x)))(v), "scan[0]"),
    "scan in while in scan": (deep, "scan[0]/while[0]/scan[0]"),
}


@pytest.mark.parametrize("way", WAYS)
def test_150_of_150(way: str) -> None:
    f, address = WAYS[way]
    v = jnp.array([0.1, 0.2, 0.3])
    before = jax.jit(f)
    before(v)
    seen = {}
    for name, make in {"eager": lambda: f, "jit": lambda: jax.jit(f), "before": lambda: before}.items():
        with tap.record() as rec:
            g = make()
            for _ in range(3):
                g(v)
        steps = [event for event in rec.events if event.path == address]
        assert len(steps) == 3 * N, name
        per_call = {call: [e.step for e in steps if e.call == call] for call in {e.call for e in steps}}
        length = steps[0].total or N
        assert all(found == list(range(length)) for found in per_call.values()), name
        assert rec.report().ok, rec.report()
        seen[name] = sorted({event.path for event in rec.events})
    assert seen["eager"] == seen["jit"] == seen["before"]


def test_one_line_run_many_times_keeps_one_address() -> None:
    def program(v: Any) -> Any:
        for i in range(4):
            v = lax.scan(lambda c, x, i=i: (c + x * i, None), v, jnp.arange(2.0))[0]
        return lax.while_loop(lambda c: c < 100.0, lambda c: c * 2.0 + 1.0, v)

    for f in (program, jax.jit(program)):
        with tap.record() as rec:
            f(1.0)
        assert {event.path for event in rec.events} == {"scan[0]", "while[1]"}
        assert [(e.call, e.step) for e in rec.events if e.path == "scan[0]"] == [
            (c, s) for c in range(4) for s in (0, 1)
        ]


def test_wrapped_function_sees_what_the_block_sees() -> None:
    f = WAYS["scan in while in scan"][0]
    with tap.record() as block:
        f(jnp.ones(3))
    g, wrapped = tap.record(f)
    g(jnp.ones(3))
    key = lambda e: (e.path, e.step, e.outer, e.call, e.kind)  # noqa: E731
    assert list(map(key, block.events)) == list(map(key, wrapped.events))


@pytest.mark.parametrize(
    "outside", [jax.jit, jax.vmap, lambda g: jax.grad(lambda x: g(x).sum())], ids=["jit", "vmap", "grad"]
)
def test_wrapped_function_composes(outside: Any) -> None:
    events: list[tap.TapEvent] = []
    f = WAYS["jax.lax.scan"][0]
    x = jnp.ones((2, 3))
    result = outside(tap.verbose(f, on_step=events.append))(x)
    jax.effects_barrier()
    assert (result == outside(f)(x)).all()
    assert len(events) == N * (2 if outside is jax.vmap else 1)
