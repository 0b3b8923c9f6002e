"""A line search that stops at its iteration limit.

A regulariser was added to the objective of an L-BFGS fit, but not to the function whose gradient is taken. The loss
goes down and settles, as it does for a fit that has converged. This one has not: its line search finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from telling import BUG, FIX, OUTPUT, heading, panels, save, say

import jaxtap_optax

ITERATIONS, PENALTY = 12, 0.05
# Each step of a line search passes over all data once more.
LINE_SEARCH_STEPS = 10


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> tuple[jax.Array, jax.Array]:
    """400 patients, 20 measurements of each, and who responded."""
    key_x, key_w, key_y = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(key_x, (400, 20))
    chance = jax.nn.sigmoid(x @ jax.random.normal(key_w, (20,)))
    return x, jax.random.bernoulli(key_y, chance).astype(jnp.float32)


X, Y = load()


def misfit(weights: jax.Array) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(X @ weights, Y).mean()


def objective(weights: jax.Array) -> jax.Array:
    return misfit(weights) + PENALTY * jnp.sum(weights**2)


def fit(value: Callable[..., Any], gradient_of: Callable[..., Any]) -> tuple[jax.Array, jax.Array]:
    """The weights after some iterations of L-BFGS, and the objective before each."""
    search = optax.scale_by_zoom_linesearch(LINE_SEARCH_STEPS, initial_guess_strategy="one")
    solver = optax.lbfgs(linesearch=search)

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        weights, state = carry
        loss, gradient = value(weights), jax.grad(gradient_of)(weights)
        updates, state = solver.update(gradient, state, weights, value=loss, grad=gradient, value_fn=value)
        return (optax.apply_updates(weights, updates), state), loss

    start = jnp.zeros(X.shape[1])
    (weights, _), losses = jax.lax.scan(step, (start, solver.init(start)), length=ITERATIONS)
    return weights, losses


# --- What happens to it --------------------------------------------------------------------------------------


def told(weights: jax.Array) -> str:
    slope = float(jnp.linalg.norm(jax.grad(objective)(weights)))
    return f"Objective {float(objective(weights)):.4f}, norm of its gradient {slope:.0e}."


def at_limit(rows: Any) -> list[int]:
    """The iterations whose line search took all steps that it may."""
    return [row.step for row in rows if row["linesearch_steps"] >= row["max_linesearch_steps"]]


def draw(wrong: Any, right: Any, losses: dict[str, Any], folder: Path) -> None:
    figure, (above, below) = panels("The loss settles in both", "How many steps the line search took")
    for name, colour, rows in (("wrong gradient", BUG, wrong), ("right gradient", FIX, right)):
        above.plot(losses[name], color=colour, label=name)
        below.plot([row["linesearch_steps"] for row in rows], ".-", color=colour, label=name)
    limit = wrong[0]["max_linesearch_steps"]
    below.axhline(limit, color="black", lw=1, ls="--", zorder=1, label=f"limit: {limit:.0f}")
    above.set(ylabel="objective")
    below.set(xlabel="iteration", ylabel="steps")
    above.legend()
    below.legend(loc="center right")
    save(figure, folder / "line_search_limit.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    heading("1. The symptom: a loss that settles")
    weights, losses = fit(objective, misfit)
    say(f"Objective at each third iteration: {', '.join(f'{loss:.4f}' for loss in losses[::3])}. It looks converged.")

    heading("2. One line around the fit")
    with jaxtap_optax.watch_updates() as seen:
        fit(objective, misfit)
    first = next(trip for trip in seen.trips if trip.tripwire == "linesearch_at_limit").row
    stuck = at_limit(seen.rows)
    say(
        f"From iteration {first.step} on, {len(stuck)} of {len(seen.rows)} line searches used all their steps, and "
        f"moved the weights by {first['update_norm']:.0e}: what the gradient calls downhill is uphill by the value. "
        "In truth:"
    )
    say(told(weights))

    heading("3. The fix: the gradient of what is minimised")
    with jaxtap_optax.watch_updates() as fixed:
        right, right_losses = fit(objective, objective)
    say(told(right))
    off = float(jnp.linalg.norm(weights - right) / jnp.linalg.norm(right))
    say(f"Line searches at their limit: {len(at_limit(fixed.rows))}. The weights before were off by {off:.0%}.")
    draw(seen.rows, fixed.rows, {"wrong gradient": losses, "right gradient": right_losses}, folder)
    return {"path": first.path, "step": first.step, "at limit": stuck, "after": at_limit(fixed.rows)}


if __name__ == "__main__":
    main()
