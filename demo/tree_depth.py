"""NUTS's trees reach their depth limit from step 23 on.

A hand-written adaptation of the step size has its sign the wrong way round: what accepts more than it should gets a
smaller step, and so accepts still more. The acceptance rate looks excellent, nothing diverges, and each draw takes over
a thousand leapfrog steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from telling import BUG, FIX, OUTPUT, heading, panels, save, say

import jaxtap_blackjax

STEPS, TARGET, GAIN = 100, 0.8, 1.1


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def logdensity(x: jax.Array) -> jax.Array:
    """Of ten correlated parameters."""
    return -0.5 * jnp.sum(x**2) - 0.5 * jnp.sum(jnp.diff(x) ** 2)


def adapt(key: jax.Array, sign: float) -> tuple[Any, jax.Array]:
    """Sample, and adapt the step size on the way by the rule of Robbins and Monro (1951)."""

    def step(carry: Any, inputs: Any) -> tuple[Any, jax.Array]:
        state, log_step_size = carry
        key, count = inputs
        kernel = blackjax.nuts(logdensity, jnp.exp(log_step_size), jnp.ones(10))
        state, info = kernel.step(key, state)
        error = TARGET - info.acceptance_rate
        log_step_size = log_step_size + sign * GAIN * error / jnp.sqrt(1.0 + count / 10)
        return (state, log_step_size), info.acceptance_rate

    start = blackjax.nuts.init(jnp.zeros(10), logdensity), jnp.log(0.1)
    keys = jax.random.split(key, STEPS)
    (_, log_step_size), rates = jax.lax.scan(step, start, (keys, jnp.arange(STEPS)))
    return jnp.exp(log_step_size), rates


# --- What happens to it --------------------------------------------------------------------------------------


def since(rows: Any) -> int | None:
    """The step from which on every tree is as deep as it may be; None if the last is not."""
    shallow = [row.step for row in rows if row["tree_depth"] < row["tree_depth_limit"]]
    return None if shallow[-1] == rows[-1].step else shallow[-1] + 1


def told(rows: Any) -> str:
    late = rows[len(rows) // 2 :]
    rate = sum(row["acceptance_rate"] for row in late) / len(late)
    leapfrog = sum(row["num_integration_steps"] for row in late) / len(late)
    return f"over the last {len(late)} steps, a mean acceptance of {rate:.4f} at {leapfrog:.0f} leapfrog steps each"


def draw(wrong: Any, right: Any, folder: Path) -> None:
    figure, (above, below) = panels(
        "Sign reversed: acceptance looks excellent", "and each tree is as deep as it may be"
    )
    for rows, colour, label in ((wrong, BUG, "sign reversed"), (right, FIX, "sign right")):
        above.plot([row["acceptance_rate"] for row in rows], color=colour, label=label)
        below.plot([row["tree_depth"] for row in rows], color=colour)
    limit = wrong[0]["tree_depth_limit"]
    below.axhline(limit, color="black", lw=1, ls="--", zorder=1)
    below.axvline(since(wrong), color=BUG, lw=1, ls=":", label=f"at the limit from step {since(wrong)} on")
    above.axhline(TARGET, color="black", lw=1, ls="--", zorder=1, label="target")
    above.set(ylabel="acceptance rate")
    below.set(xlabel="step", ylabel="tree depth")
    above.legend(loc="lower right", framealpha=0.95)
    below.legend(loc="center right")
    save(figure, folder / "tree_depth.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    key = jax.random.key(0)

    heading("1. The symptom: an acceptance rate that could not be better")
    _, rates = adapt(key, +1)
    say(f"Mean acceptance over the last {STEPS // 2} steps: {rates[STEPS // 2 :].mean():.4f}.")

    heading("2. One line around the call")
    with jaxtap_blackjax.watch_sampling() as seen:
        adapt(key, +1)
    trip = next(trip for trip in seen.trips if trip.tripwire == "tree_depth_saturated")
    say(f"From step {since(seen.rows)} on, every tree is at its limit; {told(seen.rows)}.")
    say(f"The step size shrinks although {TARGET} was aimed at: the rule has its sign the wrong way round.")

    heading("3. The fix: the right sign")
    with jaxtap_blackjax.watch_sampling() as fixed:
        step_size, _ = adapt(key, -1)
    say(f"The step size settles at {step_size:.2f}; {told(fixed.rows)}.")
    draw(seen.rows, fixed.rows, folder)
    return {
        "path": trip.row.path,
        "told at": trip.row.step,
        "since": since(seen.rows),
        "after": since(fixed.rows),
        "trips after": [trip.tripwire for trip in fixed.trips],
    }


if __name__ == "__main__":
    main()
