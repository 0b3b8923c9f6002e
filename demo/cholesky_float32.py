"""A Cholesky factor goes NaN at one step of a loop that ends looking healthy.

A scan scores 25 temperature sensors with a Gaussian process and keeps the one that fits worst. The one that is truly
broken is never found: its score is NaN, and NaN is less than nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from telling import heading, say

import jaxtap as tap

NOISE = 1e-4  # standard deviation of a reading, in units of the signal's


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> tuple[np.ndarray, np.ndarray]:
    """Times and readings of 25 sensors, 40 readings each. Sensor 17 has sent its last 20 twice, drifting meanwhile."""
    rng = np.random.default_rng(0)
    times = np.tile(np.linspace(0.0, 8.0, 40), (25, 1))
    times[17, 20:] = times[17, :20]
    phase, amplitude = rng.uniform(0, 2 * np.pi, (25, 1)), rng.uniform(0.5, 1.5, (25, 1))
    readings = amplitude * np.sin(times + phase) + NOISE * rng.standard_normal((25, 40))
    readings[17, 20:] += 0.2
    return times, readings


def log_likelihood(times: Any, readings: Any) -> Any:
    """Of a Gaussian process with an exponential kernel and white noise."""
    distance = jnp.abs(times[:, None] - times[None, :])
    covariance = jnp.exp(-distance / 5.0) + NOISE**2 * jnp.eye(times.size)
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, readings, lower=True)
    return -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum() - 0.5 * times.size * jnp.log(2 * jnp.pi)


@jax.jit
def worst_sensor(times: Any, readings: Any) -> dict[str, Any]:
    """The sensor whose readings are the least likely, and how likely they are."""

    def step(worst: dict[str, Any], sensor: Any) -> tuple[dict[str, Any], None]:
        score = log_likelihood(times[sensor], readings[sensor])
        is_worse = score < worst["score"]
        found = {"sensor": sensor, "score": score}
        return jax.tree.map(lambda new, old: jnp.where(is_worse, new, old), found, worst), None

    start = {"sensor": jnp.asarray(-1), "score": jnp.asarray(jnp.inf, times.dtype)}
    return jax.lax.scan(step, start, jnp.arange(len(times)))[0]


# --- What happens to it --------------------------------------------------------------------------------------


def told(worst: dict[str, Any]) -> str:
    return f"sensor {int(worst['sensor'])}, log likelihood {float(worst['score']):.1f}"


def main() -> dict[str, Any]:
    times, readings = load()

    heading("1. The symptom: there is none")
    as_float32 = jnp.asarray(times, jnp.float32), jnp.asarray(readings, jnp.float32)
    worst = worst_sensor(*as_float32)
    say(f"The worst of {len(times)} sensors: {told(worst)}. All numbers of the result are finite.")

    heading("2. One line around the call")
    with tap.record(taps=[tap.watch_nan("cholesky")]) as rec:
        worst_sensor(*as_float32)
    event = rec.events[0]
    say(
        f"{len(rec.events)} of {event.total} factors was not finite: that of step {event.step}, at {event.path}. Its "
        "score was NaN, `NaN < worst` is false, and so that sensor was passed over."
    )
    repeated = len(times[0]) - len(np.unique(times[event.step]))
    say(
        f"Sensor {event.step} has sent {repeated} of its readings twice, so its covariance has equal rows but for "
        f"the noise on the diagonal, {NOISE**2:.0e}. In float32, 1 + {NOISE**2:.0e} is {np.float32(1 + NOISE**2)!s}."
    )

    heading("3. The fix: float64")
    with jax.enable_x64(True):
        with tap.record(taps=[tap.watch_nan("cholesky")]) as fixed:
            found = worst_sensor(jnp.asarray(times), jnp.asarray(readings))
        say(f"The worst sensor: {told(found)}. Factors that were not finite: {len(fixed.events)}.")
    return {
        "path": event.path,
        "step": event.step,
        "events": len(rec.events),
        "worst before": int(worst["sensor"]),
        "worst after": int(found["sensor"]),
        "events after": len(fixed.events),
    }


if __name__ == "__main__":
    main()
