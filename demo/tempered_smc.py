"""Tempered SMC without a known total: progress read from the carry.

An adaptive sampler chooses its own temperatures, so nobody knows beforehand how many steps it takes, and a `while_loop`
says nothing until it is done. Here it was asked to keep 99.9 % of its particles effective: that sounds safe, and takes
for ever.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import blackjax
import blackjax.smc.resampling as resampling
import jax
import jax.numpy as jnp
from telling import BUG, FIX, OUTPUT, heading, panels, save, say

import jaxtap as tap
import jaxtap_blackjax

PARTICLES = 1000


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def log_prior(x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((x / 5.0) ** 2)


def log_likelihood(x: jax.Array) -> jax.Array:
    """Two modes, ten spreads apart."""
    return jnp.logaddexp(-0.5 * jnp.sum((x - 2.0) ** 2), -0.5 * jnp.sum((x + 2.0) ** 2)) / 0.2**2


@jax.jit
def run(key: jax.Array, target_ess: float) -> tuple[Any, jax.Array]:
    """Particles from prior to posterior, and how many steps that took.

    Args:
      key: of the sampler.
      target_ess: the share of particles that stays effective in each step.
    """
    hmc = {"step_size": 0.1, "inverse_mass_matrix": jnp.ones(2), "num_integration_steps": 5}
    smc = blackjax.adaptive_tempered_smc(
        log_prior,
        log_likelihood,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        blackjax.smc.extend_params(hmc),
        resampling.systematic,
        target_ess,
        num_mcmc_steps=2,
    )

    def unfinished(carry: Any) -> jax.Array:
        return carry[0].tempering_param < 1.0

    def step(carry: Any) -> Any:
        state, key, count = carry
        key, step_key = jax.random.split(key)
        state, _ = smc.step(step_key, state)
        return state, key, count + 1

    start_key, key = jax.random.split(key)
    particles = 5.0 * jax.random.normal(start_key, (PARTICLES, 2))
    state, _, count = jax.lax.while_loop(unfinished, step, (smc.init(particles), key, 0))
    return state, count


# --- What happens to it --------------------------------------------------------------------------------------


def show(event: tap.TapEvent) -> None:
    """A line now and then, while the loop runs."""
    if event.step % 20 == 0 or event.value == 1.0:
        print(f"  step {event.step:3d} of {event.total or '?'}: {float(event.value):7.3%} of the way", flush=True)


def spread(particles: jax.Array) -> str:
    return f"{particles[:, 0].std():.2f}, {particles[:, 1].std():.2f}"


def draw(slow: list[float], fast: list[float], folder: Path) -> None:
    figure, (axes,) = panels("How far tempering has come after each step")
    axes.semilogy(slow, color=BUG, label="target_ess = 0.999")
    axes.semilogy(fast, ".-", color=FIX, label="target_ess = 0.5")
    axes.axhline(1.0, color="black", lw=1, ls="--", zorder=1, label="posterior")
    axes.set(xlabel="step", ylabel="tempering parameter")
    axes.legend(loc="lower right")
    save(figure, folder / "tempered_smc.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    key = jax.random.key(0)

    heading("1. The symptom: silence, and no total to count to")
    start = time.perf_counter()
    state, count = jax.block_until_ready(run(key, 0.999))
    say(f"{time.perf_counter() - start:.1f} s without a word. Spread of the particles: {spread(state.particles)}.")

    heading("2. One line around the call")
    with tap.record(select=jaxtap_blackjax.tempering_parameter, on_step=show) as rec:
        run(key, 0.999)
    slow, last = [float(event.value) for event in rec.events], rec.events[-1]
    say(
        f"It does not hang: it took {len(slow)} steps of {last.path}. The first half of them made "
        f"{slow[len(slow) // 2 - 1]:.1%} of the way, the first step {slow[0]:.3%}."
    )

    heading("3. The fix: a target of one half, as is usual")
    with tap.record(select=jaxtap_blackjax.tempering_parameter, on_step=show) as rec:
        state, _ = run(key, 0.5)
    fast = [float(event.value) for event in rec.events]
    say(f"{len(fast)} steps. Spread of the particles: {spread(state.particles)}.")
    draw(slow, fast, folder)
    return {
        "path": last.path,
        "total": last.total,
        "steps": [event.step for event in rec.events],
        "complete": len(slow) == int(count) and sorted(slow) == slow and slow[-1] == 1.0,
        "times longer": len(slow) / len(fast),
    }


if __name__ == "__main__":
    main()
