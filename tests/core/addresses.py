"""Programs that mix loops with JAX's own functions, each with the addresses of its loops."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax

import jaxtap as tap

KEY = 7


def scanned(inside: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A scan of two steps whose body calls `inside` on its state."""

    def run(v: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            return inside(c) * 0.5 + t, None

        return lax.scan(body, v, jnp.arange(2.0))[0]

    return run


def thrice(c: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) + 0.1, c)


def until(c: Any) -> Any:
    return lax.while_loop(lambda a: a[0] < 2, lambda a: (a[0] + 1, a[1] * 0.9), (0, c))[1]


def key() -> Any:
    return jax.random.key(KEY)


def halves(c: Any) -> Any:
    """A scan whose steps map over halves."""
    return lax.map(thrice, c.reshape(2, -1)).reshape(c.shape)


@jax.custom_jvp
def smoothed(c: Any) -> Any:
    return thrice(c)


@smoothed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return smoothed(*primals), tangents[0] * 2.0


# What each does in the step of a scan, and the addresses of the loops in that. A `jit` of JAX's counts like any other.
IN_A_STEP: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "one loop": (thrice, ["scan[0]"]),
    "two loops": (lambda c: until(thrice(c)), ["scan[0]", "while[1]"]),
    "where before": (lambda c: thrice(jnp.where(c > 0, c, 0.5)), ["scan[1]"]),
    "clip between": (lambda c: until(jnp.clip(thrice(c), -1, 1)), ["scan[0]", "while[2]"]),
    "operators": (lambda c: thrice((c + 2.0) ** 2 / 3.0 - c[::-1]), ["scan[0]"]),
    "reductions": (lambda c: thrice(c - c.mean() / c.std()), ["scan[1]"]),
    "softmax": (lambda c: thrice(jax.nn.softmax(c)), ["scan[0]"]),
    "relu": (lambda c: thrice(jax.nn.relu(c)), ["scan[1]"]),
    "logsumexp": (lambda c: thrice(c - jsp.special.logsumexp(c)), ["scan[0]"]),
    "cholesky": (lambda c: thrice(jnp.linalg.cholesky(jnp.eye(4) + jnp.outer(c, c)) @ c), ["scan[1]"]),
    "solve": (lambda c: until(jnp.linalg.solve(jnp.eye(4) * 2.0, c)), ["while[1]"]),
    "normal": (lambda c: thrice(c + jax.random.normal(key(), (4,))), ["scan[1]"]),
    "split": (lambda c: thrice(c + jax.random.uniform(jax.random.split(key())[0])), ["scan[1]"]),
    "gamma": (lambda c: thrice(c + jax.random.gamma(key(), jnp.ones(4))), ["scan[1]"]),
    "poisson": (lambda c: until(c + jax.random.poisson(key(), 3.0).astype(c.dtype)), ["while[1]"]),
    "sort": (lambda c: thrice(jnp.sort(c)), ["scan[1]"]),
    "searchsorted": (lambda c: until(c + jnp.searchsorted(jnp.arange(4.0), 2.0).astype(c.dtype)), ["while[1]"]),
    "indexing": (lambda c: thrice(c.at[0].set(1.0)[jnp.array([3, 2, 1, 0])]), ["scan[0]"]),
    "roll": (lambda c: thrice(jnp.roll(c, 1)), ["scan[1]"]),
    "expm": (lambda c: until(jsp.linalg.expm(jnp.eye(4) * 0.1) @ c), ["while[1]"]),
    "einsum": (lambda c: thrice(jnp.einsum("i,ij->j", c, jnp.eye(4))), ["scan[0]"]),
    "jit": (jax.jit(lambda c: thrice(c)), ["jit[0]/scan[0]"]),
    "jit in jit": (jax.jit(lambda c: jax.jit(until)(c)), ["jit[0]/jit[0]/while[0]"]),
    "vmap": (lambda c: jax.vmap(thrice)(c), ["scan[0]"]),
    "map": (halves, ["scan[0]", "scan[0]/scan[0]"]),
    "checkpoint": (jax.checkpoint(thrice), ["remat[0]/scan[0]"]),
    "custom_jvp": (smoothed, ["custom_jvp[0]/scan[0]"]),
    "cond": (lambda c: lax.cond(c[0] < 9, thrice, until, c), ["cond[0]/b1/scan[0]"]),
    "switch": (
        lambda c: lax.switch(2, [until, until, thrice], c) + lax.switch(1, [until, thrice], c),
        ["cond[0]/b2/scan[0]", "cond[1]/b1/scan[0]"],
    ),
    "associative": (lambda c: thrice(lax.associative_scan(jnp.add, c)), ["scan[0]"]),
    "vectorize": (lambda c: jnp.vectorize(lambda a: thrice(a))(c), ["scan[0]"]),
}

GOLDEN = {name: ["scan[0]", *(f"scan[0]/{path}" for path in paths)] for name, (_, paths) in IN_A_STEP.items()}
PROGRAMS = {name: scanned(inside) for name, (inside, _) in IN_A_STEP.items()}
V = jnp.array([0.3, -0.2, 0.7, 1.1])


def seen(run: Callable[[Any], Any], v: Any, **lens: Any) -> list[str]:
    """The addresses that a lens sees of a program, sorted."""
    with tap.record(select=lambda leaves: (), **lens) as rec:
        jax.block_until_ready(run(v))
    return sorted({event.path for event in rec.events})


if __name__ == "__main__":
    print(json.dumps({name: seen(jax.jit(run), V) for name, run in PROGRAMS.items()}), file=sys.stdout)
