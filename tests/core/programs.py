"""Programs to look into, each with the events that a lens must see: the conformance table's first axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import scan as captured_scan

import jaxtap as tap


class State(NamedTuple):
    position: Any
    scale: Any
    step: Any


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one float vector, and what happens inside.

    Attributes:
      run: the function; takes a float32 vector of four elements.
      loops: address of each loop, with the number of carry events of one call.
      outputs: address of each scan that returns something, with the number of output events.
      waves: address of each sine and cosine, with the number of events of one call.
      marks: address of each marked value, with the number of events of one call.
      cotangents: address of each loop whose carry is differentiated, if not all, with the number of backward events.
      smooth: whether it can be differentiated in reverse mode.
      forward: whether it can be differentiated in forward mode.
    """

    run: Callable[[Any], Any]
    loops: dict[str, int]
    outputs: dict[str, int] = dataclasses.field(default_factory=dict)
    waves: dict[str, int] = dataclasses.field(default_factory=dict)
    marks: dict[str, int] = dataclasses.field(default_factory=dict)
    cotangents: dict[str, int] | None = None
    smooth: bool = True
    forward: bool = True


def step(c: Any, x: Any) -> tuple[Any, Any]:
    new = jnp.sin(c) * 0.9 + x
    return new, new * c


def scan(v):
    return lax.scan(step, v, jnp.arange(5.0))


def captured(v):
    return captured_scan(step, v, jnp.arange(5.0))


def fori(v):
    return lax.fori_loop(0, 5, lambda i, c: jnp.cos(c) + i, v)


def fori_dynamic(v):
    # Under jit the bound is not known, and the loop is a while.
    def f(v, n):
        return lax.fori_loop(0, n, lambda i, c: jnp.cos(c) + i, v)

    return jax.jit(f)(v, 5)


def mapped(v):
    return lax.map(lambda x: jnp.sin(x) * 2.0, v)


def while_(v):
    def body(c):
        return c[0] + 1, jnp.sin(c[1]) + 0.5

    return lax.while_loop(lambda c: c[0] < 5, body, (0, v))


def while_by_value(v):
    return lax.while_loop(lambda c: c.sum() < 60.0, lambda c: c * 1.5 + 1.0, v)


def associative(v):
    def body(c, x):
        return lax.associative_scan(jnp.add, c) * 0.3 + x, c.sum()

    return lax.scan(body, v, jnp.arange(4.0))


def in_custom_jvp(v):
    @jax.custom_jvp
    def f(x):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + 1.0, x)

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), tangents[0] * 2.0

    return f(v) * 3.0


def in_custom_vjp(v):
    @jax.custom_vjp
    def f(x):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + 1.0, x)

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.tanh(x),))
    return f(v) * 3.0


def in_checkpoint(v):
    return jax.checkpoint(lambda x: lax.scan(step, x, jnp.arange(3.0))[0])(v)


def checkpoint_in_body(v):
    return lax.scan(jax.checkpoint(step), v, jnp.arange(3.0))


def checkpointed_inner_loop(v):
    def outer(c, x):
        return jax.checkpoint(lambda c: lax.scan(step, c, jnp.arange(2.0))[0])(c) + x, None

    return lax.scan(outer, v, jnp.arange(3.0))[0]


def in_cond(v):
    return lax.cond(v.sum() > 0, lambda x: lax.scan(step, x, jnp.arange(3.0))[0], lambda x: x, v)


def cond_in_body(v):
    def body(c, x):
        inner = lambda c: lax.fori_loop(0, 2, lambda i, c: jnp.sin(c), c)  # noqa: E731
        return lax.cond(x < 2, inner, lambda c: c * 0.5, c), None

    return lax.scan(body, v, jnp.arange(4.0))[0]


def in_nested_jit(v):
    inner = jax.jit(lambda x: lax.scan(step, x, jnp.arange(3.0))[0])
    return jax.jit(lambda x: inner(x) + 1.0)(v)


def jit_in_body(v):
    inner = jax.jit(lambda x: lax.fori_loop(0, 2, lambda i, c: jnp.sin(c), x))

    def body(c, x):
        return jnp.where(x > 0, inner(c), c), None

    return lax.scan(body, v, jnp.arange(3.0))[0]


def scan_while_scan(v):
    def inner(c, x):
        return c * 0.9 + x, None

    def middle(s):
        return s[0] + 1, lax.scan(inner, s[1], jnp.arange(3.0))[0]

    def outer(c, x):
        return lax.while_loop(lambda s: s[0] < 2, middle, (0, c + x))[1], c.sum()

    return lax.scan(outer, v, jnp.arange(4.0))


def reverse(v):
    return lax.scan(step, v, jnp.arange(5.0), reverse=True)


def unrolled(v):
    return lax.scan(step, v, jnp.arange(5.0), unroll=2)


def unrolled_fully(v):
    return lax.scan(step, v, jnp.arange(4.0), unroll=True)


def empty(v):
    return lax.scan(step, v, jnp.zeros((0,)))


def without_xs(v):
    return lax.scan(lambda c, _: (jnp.sin(c), None), v, None, length=4)[0]


def without_trips(v):
    return lax.while_loop(lambda c: c.sum() > 1e9, lambda c: c + 1.0, v)


def named(v):
    def body(s, x):
        return State(s.position * s.scale + x, s.scale, s.step + 1), (x, s.position, {"scale": s.scale})

    return lax.scan(body, State(v, jnp.full(4, 0.5), jnp.int32(0)), jnp.arange(5.0))


def keyed(v):
    def body(c, x):
        key, c = c
        key, sub = jax.random.split(key)
        return (key, c + jax.random.normal(sub, (4,)) * x), sub

    (_, c), keys = lax.scan(body, (jax.random.key(0), v), jnp.arange(1.0, 4.0))
    return c, jax.random.key_data(keys)


def many_types(v):
    def body(c, x):
        b, h, z, n, f = c
        return (~b, h * 2 + 1, z * 1j, n + 3, jnp.sin(f) + x), (b, n)

    init = (jnp.array(True), jnp.ones(2, jnp.bfloat16), jnp.complex64(1 + 1j), jnp.uint8(250), v)
    (_, _, _, _, f), _ = lax.scan(body, init, jnp.arange(3.0))
    return f


def weak(v):
    return lax.fori_loop(0, 4, lambda i, c: (c[0] * 1.5, c[1] + c[0]), (1.0, v))


def with_effects(v):
    def body(c, x):
        jax.debug.callback(lambda _: None, c)
        return jnp.sin(c) + x, None

    return lax.scan(body, v, jnp.arange(3.0))[0]


def loop_in_condition(v):
    def going_on(c):
        return lax.fori_loop(0, 2, lambda i, t: t + c[1].sum() * 0.0 + 1.0, 0.0) + c[0] < 5.0

    return lax.while_loop(going_on, lambda c: (c[0] + 1.0, jnp.sin(c[1])), (0.0, v))[1]


def matrix(v):
    w = jnp.arange(16.0).reshape(4, 4) * 0.05

    def body(c, x):
        return jnp.tanh(w @ c + x), c @ w

    return lax.scan(body, v, jnp.arange(4.0))


def solved(v):
    def solve(matvec, b):
        return lax.fori_loop(0, 2, lambda i, x: x + 0.4 * (b - matvec(x)), b)

    a = jnp.eye(4) * 2.0 + 0.1
    return lax.custom_linear_solve(lambda x: a @ x, v, solve, symmetric=True)


def same_line(v):
    for _ in range(3):
        v = lax.scan(step, v, jnp.arange(2.0))[0]
    return v


def sines(v):
    """Equations outside of any loop, in a branch, under a checkpoint, and in a call."""
    v = jnp.sin(v * v + 0.5) * v
    v = lax.cond(v.sum() > 0, lambda x: jnp.sin(x * x + 1.0), lambda x: x, v * 1.5)
    v = jax.checkpoint(lambda x: jnp.sin(x * 2.0 + 1.0) * x)(v * v + 1.0)
    v = jax.jit(lambda x: jnp.cos(x * 3.0 + 1.0) * x)(v * v + 2.0)
    return v + lax.sin(v * v + 1.0) * v


def marked(v):
    def inner(c, x):
        c = tap.mark("inner", {"c": c * c + x})["c"]
        return jnp.tanh(c), None

    def body(c, x):
        tap.mark("residual", c * x + 1.0)
        c = jax.jit(lambda c: tap.mark("deep", c * 0.5 + 0.1))(c)
        return lax.scan(inner, c, jnp.arange(2.0))[0], None

    tap.mark("start", v * v + 1.0)
    return lax.scan(body, v, jnp.arange(3.0))[0]


def dropped_outputs(v):
    """What a step returns is not used, nor the input that it comes from; too large to be done twice."""
    xs = jnp.arange(12.0).reshape(3, 4)
    return lax.scan(lambda c, x: (jnp.sin(c) * 0.9, (x * 2.0, c)), jnp.tile(v, 200), xs)[0]


def two_loops(v):
    v = lax.scan(step, v, jnp.arange(2.0))[0]
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, v))[1]


PROGRAMS: dict[str, Program] = {
    "scan": Program(scan, {"scan[0]": 5}, {"scan[0]": 5}, waves={"scan[0]/sin[0]": 5}),
    "captured": Program(captured, {"scan[0]": 5}, {"scan[0]": 5}, waves={"scan[0]/sin[0]": 5}),
    "fori": Program(fori, {"scan[0]": 5}, waves={"scan[0]/cos[0]": 5}),
    "fori_dynamic": Program(fori_dynamic, {"while[0]": 5}, waves={"while[0]/cos[0]": 5}, smooth=False),
    "mapped": Program(mapped, {"scan[0]": 4}, {"scan[0]": 4}, waves={"scan[0]/sin[0]": 4}, cotangents={}),
    "while": Program(while_, {"while[0]": 5}, waves={"while[0]/sin[0]": 5}, smooth=False),
    "while_by_value": Program(while_by_value, {"while[0]": 5}, smooth=False),
    "associative": Program(associative, {"scan[0]": 4}, {"scan[0]": 4}),
    "in_custom_jvp": Program(in_custom_jvp, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}, cotangents={}),
    "in_custom_vjp": Program(in_custom_vjp, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}, cotangents={}, forward=False),
    "in_checkpoint": Program(
        in_checkpoint, {"remat[0]/scan[0]": 3}, {"remat[0]/scan[0]": 3}, waves={"remat[0]/scan[0]/sin[0]": 3}
    ),
    "checkpoint_in_body": Program(
        checkpoint_in_body, {"scan[0]": 3}, {"scan[0]": 3}, waves={"scan[0]/remat[0]/sin[0]": 3}
    ),
    "checkpointed_inner_loop": Program(
        checkpointed_inner_loop,
        {"scan[0]": 3, "scan[0]/remat[0]/scan[0]": 6},
        {"scan[0]/remat[0]/scan[0]": 6},
        waves={"scan[0]/remat[0]/scan[0]/sin[0]": 6},
    ),
    "in_cond": Program(
        in_cond, {"cond[0]/b1/scan[0]": 3}, {"cond[0]/b1/scan[0]": 3}, waves={"cond[0]/b1/scan[0]/sin[0]": 3}
    ),
    "cond_in_body": Program(
        cond_in_body, {"scan[0]": 4, "scan[0]/cond[0]/b1/scan[0]": 4}, waves={"scan[0]/cond[0]/b1/scan[0]/sin[0]": 4}
    ),
    "in_nested_jit": Program(in_nested_jit, {"scan[0]": 3}, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}),
    "jit_in_body": Program(
        jit_in_body, {"scan[0]": 3, "scan[0]/jit[0]/scan[0]": 6}, waves={"scan[0]/jit[0]/scan[0]/sin[0]": 6}
    ),
    "scan_while_scan": Program(
        scan_while_scan,
        {"scan[0]": 4, "scan[0]/while[0]": 8, "scan[0]/while[0]/scan[0]": 24},
        {"scan[0]": 4},
        smooth=False,
    ),
    "reverse": Program(reverse, {"scan[0]": 5}, {"scan[0]": 5}, waves={"scan[0]/sin[0]": 5}),
    "unrolled": Program(unrolled, {"scan[0]": 5}, {"scan[0]": 5}, waves={"scan[0]/sin[0]": 5}),
    "unrolled_fully": Program(unrolled_fully, {"scan[0]": 4}, {"scan[0]": 4}, waves={"scan[0]/sin[0]": 4}),
    "empty": Program(empty, {}),
    "without_xs": Program(without_xs, {"scan[0]": 4}, waves={"scan[0]/sin[0]": 4}),
    "without_trips": Program(without_trips, {}, smooth=False),
    "named": Program(named, {"scan[0]": 5}, {"scan[0]": 5}),
    "keyed": Program(keyed, {"scan[0]": 3}, {"scan[0]": 3}),
    "many_types": Program(many_types, {"scan[0]": 3}, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}),
    "weak": Program(weak, {"scan[0]": 4}),
    "with_effects": Program(with_effects, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}),
    "loop_in_condition": Program(
        loop_in_condition, {"while[0]": 3, "while[0]/cond/scan[0]": 8}, waves={"while[0]/sin[0]": 3}, smooth=False
    ),
    "matrix": Program(matrix, {"scan[0]": 4}, {"scan[0]": 4}),
    "solved": Program(solved, {"scan[0]": 2}, smooth=False, forward=False),
    "same_line": Program(same_line, {"scan[0]": 6}, {"scan[0]": 6}, waves={"scan[0]/sin[0]": 6}),
    "dropped_outputs": Program(dropped_outputs, {"scan[0]": 3}, {"scan[0]": 3}, waves={"scan[0]/sin[0]": 3}),
    "two_loops": Program(
        two_loops,
        {"scan[0]": 2, "while[1]": 3},
        {"scan[0]": 2},
        waves={"scan[0]/sin[0]": 2, "while[1]/sin[0]": 3},
        smooth=False,
    ),
    "sines": Program(
        sines,
        {},
        waves={"sin[0]": 1, "cond[0]/b1/sin[0]": 1, "remat[1]/sin[0]": 1, "cos[0]": 1, "sin[1]": 1},
    ),
    "marked": Program(
        marked,
        {"scan[0]": 3, "scan[0]/scan[1]": 6},
        marks={"start[0]": 1, "scan[0]/residual[0]": 3, "scan[0]/jit[0]/deep[0]": 3, "scan[0]/scan[1]/inner[0]": 6},
    ),
}
