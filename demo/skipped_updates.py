"""`optax.apply_if_finite` silently skips a fifth of the updates.

One of five clinics leaves a missing reading as NaN. Each of its batches has a gradient that is NaN, so the optimizer
leaves it out, as it was told to. The loss that is logged looks well; the model has never seen that clinic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from telling import heading, say

import jaxtap_optax

CLINICS = 5


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> dict[str, np.ndarray]:
    """A batch of 32 patients for each clinic: three readings, the clinic, and the outcome."""
    rng = np.random.default_rng(0)
    readings = rng.normal(size=(CLINICS, 32, 3)).astype(np.float32)
    clinic = np.tile(np.arange(CLINICS)[:, None], 32)
    outcome = (
        readings @ np.array([1.0, -2.0, 0.5], np.float32) + np.array([0.0, 1.0, -1.0, 4.0, 2.0], np.float32)[clinic]
    )
    readings[3, 5, 1] = np.nan
    return {"readings": readings, "clinic": clinic, "outcome": outcome}


def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    predicted = batch["readings"] @ params["weights"] + params["offset"][batch["clinic"]]
    return jnp.mean((predicted - batch["outcome"]) ** 2)


def loss_of_complete(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """The same, over the patients of whom no reading is missing."""
    complete = jnp.isfinite(batch["readings"]).all(axis=-1)
    predicted = jnp.nan_to_num(batch["readings"]) @ params["weights"] + params["offset"][batch["clinic"]]
    return jnp.sum(complete * (predicted - batch["outcome"]) ** 2) / jnp.sum(complete)


def train(loss: Callable[..., jax.Array], epochs: int = 100) -> tuple[dict[str, jax.Array], jax.Array]:
    """The parameters, and the loss of each step: batch by batch, epoch by epoch."""
    optimizer = optax.apply_if_finite(optax.adam(0.05), max_consecutive_errors=5)
    params = {"weights": jnp.zeros(3), "offset": jnp.zeros(CLINICS)}

    def step(carry: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    batches = jax.tree.map(lambda a: jnp.tile(a, (epochs,) + (1,) * (a.ndim - 1)), load())
    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), batches)
    return params, losses


# --- What happens to it --------------------------------------------------------------------------------------


def told(params: dict[str, jax.Array], losses: jax.Array) -> str:
    first, last = np.nanmean(losses[:CLINICS]), np.nanmean(losses[-CLINICS:])
    offsets = ", ".join(f"{offset:.2f}" for offset in params["offset"])
    return f"Loss {first:.2f} in the first epoch, {last:.4f} in the last. Offsets of the clinics: {offsets}."


def main() -> dict[str, Any]:
    heading("1. The symptom: none, if the loss is logged with nanmean")
    params, losses = train(loss)
    say(told(params, losses))

    heading("2. One line around the training, of four epochs this time")
    with jaxtap_optax.watch_updates() as seen:
        train(loss, epochs=4)
    skipped = [row.step for row in seen.rows if row["notfinite_count"]]
    batches = sorted({step % CLINICS for step in skipped})
    say(
        f"{len(skipped)} of {len(seen.rows)} updates ({len(skipped) / len(seen.rows):.0%}) were left out: steps "
        f"{', '.join(map(str, skipped))}, which are batch {', '.join(map(str, batches))} of each epoch. The offset "
        f"of that clinic is {params['offset'][batches[0]]:.2f}, as it was when training began."
    )

    heading("3. The fix: leave out the patient, not the clinic")
    with jaxtap_optax.watch_updates() as fixed:
        params, losses = train(loss_of_complete)
    say(told(params, losses))
    after = [row.step for row in fixed.rows if row["notfinite_count"]]
    say(f"Updates left out: {len(after)}.")
    first = seen.trips[0]
    return {
        "path": first.row.path,
        "tripwire": first.tripwire,
        "steps": skipped,
        "share": len(skipped) / len(seen.rows),
        "batches": batches,
        "after": len(after),
    }


if __name__ == "__main__":
    main()
