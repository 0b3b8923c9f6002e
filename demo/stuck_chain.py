"""One of 64 chains is stuck.

A logistic regression takes the logarithm of a sigmoid. Where a chain begins so far out that the sigmoid is 0 in
float32, the log density is minus infinity and its gradient NaN: no step from there is ever accepted. The mean over 64
chains hides it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from telling import BUG, OUTPUT, USUAL, heading, panels, save, say

import jaxtap_blackjax

CHAINS, DRAWS = 64, 200


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> tuple[jax.Array, jax.Array]:
    """Dose, in milligrams, and effect (+1 or -1), of 60 patients."""
    key_x, key_y = jax.random.split(jax.random.key(0))
    dose = jax.random.uniform(key_x, (60,), minval=0.0, maxval=10.0)
    chance = jax.nn.sigmoid(0.8 * (dose - 5.0))
    return dose, jnp.where(jax.random.bernoulli(key_y, chance), 1.0, -1.0)


DOSE, EFFECT = load()


def naive(position: dict[str, jax.Array]) -> jax.Array:
    logits = position["slope"] * DOSE + position["intercept"]
    likelihood = jax.nn.sigmoid(EFFECT * logits)
    return jnp.log(likelihood).sum() - 0.5 * (position["slope"] ** 2 + (position["intercept"] / 5) ** 2)


def stable(position: dict[str, jax.Array]) -> jax.Array:
    logits = position["slope"] * DOSE + position["intercept"]
    likelihood = jax.nn.log_sigmoid(EFFECT * logits)
    return likelihood.sum() - 0.5 * (position["slope"] ** 2 + (position["intercept"] / 5) ** 2)


def sample(key: jax.Array, logdensity: Callable[..., jax.Array]) -> dict[str, jax.Array]:
    """Draws of 64 chains, begun far apart, as one should."""
    kernel = blackjax.nuts(logdensity, step_size=0.1, inverse_mass_matrix=jnp.array([4.0, 0.2]))
    start_key, *keys = jax.random.split(key, CHAINS + 1)
    far = jax.random.normal(start_key, (2, CHAINS))
    start = {"slope": 4.0 * far[0], "intercept": 4.0 * far[1]}

    def chain(key: jax.Array, position: dict[str, jax.Array]) -> dict[str, jax.Array]:
        state = kernel.init(position)
        _, (states, _) = blackjax.util.run_inference_algorithm(key, kernel, DRAWS, initial_state=state)
        return states.position

    return jax.jit(jax.vmap(chain))(jnp.stack(keys), start)


# --- What happens to it --------------------------------------------------------------------------------------


def told(draws: dict[str, jax.Array]) -> str:
    late = draws["slope"][:, DRAWS // 2 :]
    return f"slope {late.mean():.2f} in the mean, standard deviation {late.std():.2f}"


def draw(rows: Any, stuck: tuple[int, ...], folder: Path) -> None:
    figure, (axes,) = panels(f"{CHAINS} chains: one stands where it began")
    for lane in sorted({row.lane for row in rows}, key=lambda lane: lane == stuck):
        is_stuck = lane == stuck
        style = {"color": BUG if is_stuck else USUAL, "lw": 2.5 if is_stuck else 0.5, "alpha": 1 if is_stuck else 0.5}
        label = f"chain {lane[0]}" if is_stuck else "the others" if lane == (0,) else None
        axes.plot([row["position_norm"] for row in rows if row.lane == lane], label=label, **style)
    axes.set(xlabel="step", ylabel="norm of the position", xlim=(0, DRAWS), ylim=0)
    axes.legend(loc="center right")
    save(figure, folder / "stuck_chain.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    key = jax.random.key(1)

    heading("1. The symptom: a wide posterior")
    say(f"Of {CHAINS} chains, the second halves: {told(sample(key, naive))}. All numbers are finite.")

    heading("2. One line around the call")
    wires = [*jaxtap_blackjax.non_finite(), jaxtap_blackjax.frozen()]
    with jaxtap_blackjax.watch_sampling(tripwires=wires) as seen:
        sample(key, naive)
    frozen = [trip.row for trip in seen.trips if trip.tripwire == "frozen"]
    first = seen.trips[0].row
    divergent = sum(row["is_divergent"] for row in seen.rows) / len(seen.rows)
    say(
        f"{len(frozen)} of {CHAINS} chains stands still: lane {first.lane}, whose log density is {first['logdensity']} "
        f"from step {first.step} on. Its divergences are {divergent:.1%} of all steps, which is easily overlooked."
    )

    heading("3. The fix: log_sigmoid")
    with jaxtap_blackjax.watch_sampling(tripwires=wires) as fixed:
        draws = sample(key, stable)
    say(f"The second halves: {told(draws)}. Tripwires that fired: {len(fixed.trips)}.")
    draw(seen.rows, first.lane, folder)
    return {
        "path": first.path,
        "step": first.step,
        "lane": first.lane,
        "tripwires": [trip.tripwire for trip in seen.trips],
        "frozen": [(row.lane, row.step) for row in frozen],
        "after": len(fixed.trips),
    }


if __name__ == "__main__":
    main()
