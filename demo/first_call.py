"""Forty seconds of first call: where they went.

A recurrent network was ported with its Python loop over time. JAX writes the loop out: what is traced, lowered and
compiled is one copy of the cell for each step in time, and again as many for the gradient.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from telling import heading, say

import jaxtap as tap

WIDTH, BATCH = 32, 16


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def init(key: jax.Array) -> dict[str, jax.Array]:
    keys = jax.random.split(key, 3)
    shapes = {"update": (2 * WIDTH, WIDTH), "candidate": (2 * WIDTH, WIDTH), "readout": (WIDTH, 1)}
    return {
        name: jax.random.normal(k, shape) / shape[0] ** 0.5
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def cell(params: dict[str, jax.Array], hidden: jax.Array, x: jax.Array) -> jax.Array:
    """A minimal gated unit."""
    gate = jax.nn.sigmoid(jnp.concatenate([hidden, x], axis=-1) @ params["update"])
    candidate = jnp.tanh(jnp.concatenate([gate * hidden, x], axis=-1) @ params["candidate"])
    return (1 - gate) * hidden + gate * candidate


def unrolled(params: dict[str, jax.Array], xs: jax.Array) -> jax.Array:
    hidden = jnp.zeros((BATCH, WIDTH))
    for x in xs:
        hidden = cell(params, hidden, x)
    return hidden


def scanned(params: dict[str, jax.Array], xs: jax.Array) -> jax.Array:
    def step(hidden: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return cell(params, hidden, x), None

    return jax.lax.scan(step, jnp.zeros((BATCH, WIDTH)), xs)[0]


def make_train_step(network: Callable[..., jax.Array]) -> Callable[..., Any]:
    def loss(params: dict[str, jax.Array], xs: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((network(params, xs) @ params["readout"] - y) ** 2)

    @jax.jit
    def train_step(params: dict[str, jax.Array], xs: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        gradient = jax.grad(loss)(params, xs, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    return train_step


# --- What happens to it --------------------------------------------------------------------------------------


def first_call(network: Callable[..., Any], length: int) -> float:
    """Seconds that the first call of a train step takes."""
    args = init(jax.random.key(0)), jnp.ones((length, BATCH, WIDTH)), jnp.ones((BATCH, 1))
    train_step = make_train_step(network)
    start = time.perf_counter()
    jax.block_until_ready(train_step(*args))
    return time.perf_counter() - start


def equations(network: Callable[..., Any], length: int) -> int:
    """How many equations a train step is traced to, loops and calls looked into."""
    args = init(jax.random.key(0)), jnp.ones((length, BATCH, WIDTH)), jnp.ones((BATCH, 1))
    return sum(tap.primitives(make_train_step(network), *args).values())


def main(length: int = 32) -> dict[str, Any]:
    heading(f"1. The symptom: a first call of a network over {length} steps in time")
    with tap.compiles() as log:
        seconds = first_call(unrolled, length)
    say(f"{seconds:.1f} s, during which nothing was said.")

    heading("2. Where they went: `with tap.compiles() as log:` was around that call")
    print(log.report())
    row = log.of("train_step")[0]
    stations = {"trace": row.trace_seconds, "lower": row.lowering_seconds, "compile": row.compile_seconds}
    longest = max(stations, key=lambda name: stations[name])
    say(
        f"Compiled {len(log.of('train_step'))} time. The station that took most is {longest!r}, "
        f"{stations[longest] / seconds:.0%} of the call: XLA works on {equations(unrolled, length)} equations."
    )

    heading("3. The fix: lax.scan over time")
    with tap.compiles() as fixed:
        after = first_call(scanned, length)
    say(
        f"{after:.1f} s for the first call, {seconds / after:.0f} times less. {equations(scanned, length)} equations, "
        f"however long the sequence: for one twice as long, {equations(scanned, 2 * length)}."
    )
    return {
        "function": row.name,
        "compiled": len(log.of("train_step")),
        "station": longest,
        "seconds": (seconds, after),
        "equations": (equations(unrolled, length), equations(scanned, length), equations(scanned, 2 * length)),
        "after": len(fixed.of("train_step")),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=32, help="steps in time (default: 32; 60 take forty seconds)")
    main(parser.parse_args().length)
