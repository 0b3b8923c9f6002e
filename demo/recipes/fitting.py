"""The program that the recipes look at: a logistic regression by gradient descent. It knows nothing of jaxtap."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames="steps")
def fit(steps: int = 2000) -> dict[str, jax.Array]:
    """Weights after some steps of gradient descent, with the loss and the norm of the gradient before the last."""
    key_x, key_w = jax.random.split(jax.random.key(0))
    x = jax.random.normal(key_x, (500, 10))
    y = jnp.where(x @ jax.random.normal(key_w, (10,)) > 0, 1.0, -1.0)

    def loss_of(weights: jax.Array) -> jax.Array:
        return -jax.nn.log_sigmoid(y * (x @ weights)).mean()

    def step(state: dict[str, jax.Array], _: None) -> tuple[dict[str, jax.Array], None]:
        loss, gradient = jax.value_and_grad(loss_of)(state["weights"])
        weights = state["weights"] - 0.5 * gradient
        return {"weights": weights, "loss": loss, "gradient_norm": jnp.linalg.norm(gradient)}, None

    start = {"weights": jnp.zeros(10), "loss": jnp.float32(0.0), "gradient_norm": jnp.float32(0.0)}
    return jax.lax.scan(step, start, length=steps)[0]


def numbers(leaves: Any) -> dict[str, Any]:
    """What the recipes show of its state: pass it as `select=`."""
    return {name: leaves[name] for name in ("loss", "gradient_norm")}
