"""A train step that is traced again at every last batch.

Each epoch draws anew which of the many negative examples it keeps, and so ends in a last batch of another size. Each
size is another program: JAX traces and compiles it anew, in the middle of training, and says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from telling import heading, say

import jaxtap as tap

EPOCHS, BATCH = 6, 64


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> tuple[np.ndarray, np.ndarray]:
    """500 points of two classes, as inside and outside of a ring."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (500, 2)).astype(np.float32)
    return x, (np.linalg.norm(x, axis=1) < 0.7).astype(np.float32)


def init(key: jax.Array) -> dict[str, jax.Array]:
    first, second = jax.random.split(key)
    return {"w": jax.random.normal(first, (2, 64)), "b": jnp.zeros(64), "out": jax.random.normal(second, (64,)) / 8}


def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    logits = jnp.tanh(batch["x"] @ params["w"] + params["b"]) @ params["out"]
    each = optax.sigmoid_binary_cross_entropy(logits, batch["y"])
    return jnp.sum(batch["weight"] * each) / jnp.sum(batch["weight"])


def make_train_step() -> Callable[..., Any]:
    @jax.jit
    def train_step(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        gradient = jax.grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, gradient)

    return train_step


def cut(x: np.ndarray, y: np.ndarray, start: int) -> dict[str, np.ndarray]:
    """A batch: 64 examples, or what is left."""
    x, y = x[start : start + BATCH], y[start : start + BATCH]
    return {"x": x, "y": y, "weight": np.ones(len(y), np.float32)}


def padded(x: np.ndarray, y: np.ndarray, start: int) -> dict[str, np.ndarray]:
    """The same, filled up with examples that weigh nothing."""
    batch = cut(x, y, start)
    missing = BATCH - len(batch["y"])
    return {name: np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)) for name, a in batch.items()}


def train(batch_at: Callable[..., dict[str, np.ndarray]]) -> tuple[dict[str, jax.Array], list[float]]:
    """The parameters, and the seconds that each epoch took."""
    x, y = load()
    rng, train_step = np.random.default_rng(1), make_train_step()
    params, seconds = init(jax.random.key(0)), []
    for _ in range(EPOCHS):
        begin = time.perf_counter()
        kept = (y == 1) | (rng.random(len(y)) < 0.5)
        for start in range(0, kept.sum(), BATCH):
            params = train_step(params, batch_at(x[kept], y[kept], start))
        jax.block_until_ready(params)
        seconds.append(time.perf_counter() - begin)
    return params, seconds


# --- What happens to it --------------------------------------------------------------------------------------


def told(seconds: list[float]) -> str:
    return ", ".join(f"{1e3 * s:.0f}" for s in seconds) + " ms"


def main() -> dict[str, Any]:
    heading("1. The symptom: later epochs take hardly less than the first")
    with tap.compiles(alert_after=2) as log:
        params, seconds = train(cut)
    say(f"The epochs took {told(seconds)}.")

    heading("2. Why: `with tap.compiles(alert_after=2) as log:` was around it")
    rows = log.of("train_step")
    for row in rows[1:]:
        change = next(change for change in row.changes if change.argument == "batch['x']")
        print(f"{1e3 * row.seconds:5.0f} ms: trace number {row.number}, {change}")
    share = sum(row.seconds for row in rows) / sum(seconds)
    say(f"One function, {len(rows)} programs in {EPOCHS} epochs; making them took {share:.0%} of the time.")

    heading("3. The fix: fill the last batch up with examples of weight 0")
    with tap.compiles(alert_after=2) as fixed:
        same, after = train(padded)
    apart = max(float(jnp.abs(params[name] - same[name]).max()) for name in params)
    programs = len(fixed.of("train_step"))
    say(f"The epochs took {told(after)}; {programs} program. The parameters are the same to {apart:.0e}.")
    return {
        "function": rows[0].name,
        "causes": [row.cause for row in rows],
        "numbers": [row.number for row in rows],
        "arguments": sorted({change.argument for row in rows for change in row.changes}),
        "sizes": [int(dict(row.arguments)["batch['y']"].removeprefix("f32[").removesuffix("]")) for row in rows],
        "after": len(fixed.of("train_step")),
        "apart": apart,
    }


if __name__ == "__main__":
    main()
