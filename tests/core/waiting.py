"""Programs whose events can wait, and what of their events is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxtap as tap

STEPS = 40


def leapfrog(c: Any) -> Any:
    def outer(c: Any, _: Any) -> Any:
        def inner(c: Any, _: Any) -> Any:
            q, p = c
            p = p - 0.05 * q
            return (q + 0.1 * p, p), None

        return lax.scan(inner, (c[0], c[1] * 0.9 + 0.1), None, length=5)[0], c[0].sum()

    return lax.scan(outer, (c, c), None, length=STEPS)


def uneven(c: Any) -> Any:
    """Inner loops of different lengths, in a branch, within a loop of unknown length."""

    def halve(s: Any) -> Any:
        i, v = s
        return i + 1, lax.while_loop(lambda v: jnp.abs(v).max() > 0.5, lambda v: v * 0.7, v + i % 4)

    def body(s: Any) -> Any:
        return lax.cond(s[0] % 3 == 0, halve, lambda s: (s[0] + 1, jnp.sin(s[1])), s)

    return lax.while_loop(lambda s: s[0] < STEPS, body, (0, c))


def marked(c: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        new = tap.mark("new", jnp.sin(c) + x)
        tap.mark("inside", {"norm": jnp.sqrt((c * c).sum()), "x": x})
        return new, None

    return lax.scan(body, c, jnp.linspace(0.0, 1.0, STEPS))[0]


def long(c: Any) -> Any:
    """More steps in the inner loop than one flush holds."""

    def outer(c: Any, _: Any) -> Any:
        return lax.fori_loop(0, 1500, lambda i, c: jnp.sin(c) + 0.1, c), None

    return lax.scan(outer, c, None, length=2)[0]


def chains(c: Any) -> Any:
    return jax.vmap(uneven)(jnp.stack([c, c * 3.0, c * 0.1]))


def slope(c: Any) -> Any:
    return jax.grad(lambda c: leapfrog(c)[0][0].sum())(c)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "leapfrog": (leapfrog, {}),
    "outputs": (leapfrog, {"select_ys": lambda leaves: leaves[0]}),
    "every third step": (leapfrog, {"sample_every": 3}),
    "uneven": (uneven, {}),
    "every other uneven step": (uneven, {"sample_every": 2}),
    "marks": (marked, {}),
    "sines": (marked, {"taps": [tap.on("sin", select=lambda leaves: leaves[0].sum())]}),
    "chains": (chains, {}),
    "some chains": (chains, {"lanes": [0, 2], "sample_every": 2}),
    "backward": (slope, {"backward": True}),
    "long": (long, {"select": lambda leaves: leaves[-1]}),
    "kept": (leapfrog, {"last": 3}),
}


def events_of(f: Callable[[Any], Any], **options: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """The result of a program, and its events without times, values as bytes."""
    with tap.record(**options) as rec:
        result = jax.block_until_ready(jax.jit(f)(jnp.array([0.1, 0.7, -0.3, 2.0])))
    assert rec.report().ok, rec.report()
    return result, [(e.kind, e.path, e.step, e.outer, e.lane, e.call, e.total, *bits(e.value)) for e in rec.events]


def bits(value: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(value)]


def by_address(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Events of one address after the other, in the order in which they came."""
    return sorted(events, key=lambda event: event[:2])
