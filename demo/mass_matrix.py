"""A mass matrix that never adapts.

Somebody wanted a line of progress every 15 steps of BlackJAX's warmup, and so runs it in pieces of 15 steps. Each piece
starts its adaptation anew, and none is long enough for a window that adapts the mass matrix.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from telling import BUG, FIX, OUTPUT, heading, panels, save, say

import jaxtap_blackjax

# The posterior's standard deviations: its four parameters have four units.
SCALES = jnp.array([0.1, 0.5, 2.0, 10.0])
STEPS, PIECE, DRAWS = 300, 15, 500


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def logdensity(x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((x / SCALES) ** 2)


def warmup_in_pieces(key: jax.Array) -> Any:
    """Warm up 15 steps at a time, so that there is something to print in between."""
    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    run = jax.jit(warmup.run, static_argnames="num_steps")
    position = jnp.zeros(4)
    for part in jax.random.split(key, STEPS // PIECE):
        (state, parameters), _ = run(part, position, num_steps=PIECE)
        position = state.position
    return state, parameters


def warmup_at_once(key: jax.Array) -> Any:
    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    return warmup.run(key, jnp.zeros(4), num_steps=STEPS)[0]


def sample(key: jax.Array, state: Any, parameters: dict[str, Any]) -> Any:
    kernel = blackjax.nuts(logdensity, **parameters)
    _, (states, infos) = blackjax.util.run_inference_algorithm(key, kernel, DRAWS, initial_state=state)
    return states.position, infos


# --- What happens to it --------------------------------------------------------------------------------------


def told(draws: jax.Array, infos: Any) -> str:
    """How sampling went after a warmup."""
    rate, divergent = float(infos.acceptance_rate.mean()), int(infos.is_divergent.sum())
    steps = float(infos.num_integration_steps.mean())
    size = float(blackjax.diagnostics.effective_sample_size(draws[None])[-1])
    return (
        f"{divergent} divergent draws, mean acceptance {rate:.2f}. A draw takes {steps:.0f} leapfrog steps in the "
        f"mean; of {len(draws)} draws, the effective size for the widest parameter is {size:.0f}."
    )


def draw(pieces: Any, whole: Any, folder: Path) -> None:
    """The largest entry of the inverse mass matrix, at each step of both warmups."""
    figure, (axes,) = panels("A warmup in pieces never adapts its mass matrix")
    for rows, colour, label in ((whole, FIX, "at once"), (pieces, BUG, f"in pieces of {PIECE}")):
        axes.semilogy([row["mass_matrix_max"] for row in rows], drawstyle="steps-post", color=colour, label=label)
    axes.axhline(float(jnp.max(SCALES**2)), color="black", lw=1, ls="--", label="largest variance of the posterior")
    axes.set(xlabel="warmup step", ylabel="largest entry of the\ninverse mass matrix", xlim=(0, STEPS))
    axes.legend(loc="center right")
    save(figure, folder / "mass_matrix.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    key, sample_key = jax.random.split(jax.random.key(0))

    heading("1. The symptom: slow, and nothing says why")
    state, parameters = warmup_in_pieces(key)
    say(told(*sample(sample_key, state, parameters)))

    heading("2. One line around the warmup")
    with jaxtap_blackjax.watch_warmup() as pieces:
        warmup_in_pieces(key)
    trips = [trip for trip in pieces.trips if trip.tripwire == "mass_matrix_unmoved"]
    rows = pieces.rows
    stages = sorted({row["stage"] for row in rows})
    matrices = {row["mass_matrix_max"] for row in rows}
    say(
        f"{len(rows)} steps in {len({row.call for row in rows})} calls of {trips[0].row.path}, all in the stage "
        f"{', '.join(stages)!r}: with {PIECE} steps, BlackJAX's schedule has no slow window. In all of them, the "
        f"largest entry of the inverse mass matrix is {' or '.join(f'{entry:g}' for entry in matrices)}, as BlackJAX "
        "begins with."
    )

    heading("3. The fix: one warmup (for progress, jaxtap_blackjax.progress)")
    with jaxtap_blackjax.watch_warmup() as whole:
        state, parameters = warmup_at_once(key)
    ends = [row.step for row in whole.rows if row["stage"] == "window end"]
    moved = [trip for trip in whole.trips if trip.tripwire == "mass_matrix_unmoved"]
    say(f"The matrix is adapted at the end of each slow window, after steps {ends}.")
    say(told(*sample(sample_key, state, parameters)))
    draw(rows, whole.rows, folder)
    return {
        "path": trips[0].row.path,
        "step": trips[0].row.step,
        "calls": [trip.row.call for trip in trips],
        "stages": stages,
        "matrices": sorted(matrices),
        "windows after": ends,
        "trips after": len(moved),
    }


if __name__ == "__main__":
    main()
