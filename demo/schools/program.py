"""An ordinary BlackJAX program: NUTS on the eight schools. Nothing in this file knows of jaxtap."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy.stats import cauchy, norm


def load(path: Path) -> tuple[jax.Array, jax.Array]:
    """The estimated effects and their standard errors, one of each for a school."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(jnp.array([float(row[name]) for row in rows]) for name in ("estimate", "standard_error"))


def centred(estimates: jax.Array, errors: jax.Array) -> Callable[[dict[str, jax.Array]], jax.Array]:
    """The log density of the hierarchical model, with each school's effect as a parameter of its own."""

    def logdensity(position: dict[str, jax.Array]) -> jax.Array:
        mu, log_tau, theta = position["mu"], position["log_tau"], position["theta"]
        tau = jnp.exp(log_tau)
        prior = norm.logpdf(mu, 0, 5) + cauchy.logpdf(tau, 0, 5) + log_tau
        return prior + norm.logpdf(theta, mu, tau).sum() + norm.logpdf(estimates, theta, errors).sum()

    return logdensity


def run(seed: int, estimates: jax.Array, errors: jax.Array, num_warmup: int, num_samples: int) -> dict[str, Any]:
    """Warm NUTS up with BlackJAX's defaults, then sample."""
    warmup_key, sample_key = jax.random.split(jax.random.key(seed))
    logdensity = centred(estimates, errors)
    start = {"mu": estimates.mean(), "log_tau": jnp.log(estimates.std()), "theta": estimates}

    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    (state, parameters), warmup_info = warmup.run(warmup_key, start, num_steps=num_warmup)

    kernel = blackjax.nuts(logdensity, **parameters)
    _, (states, infos) = blackjax.util.run_inference_algorithm(sample_key, kernel, num_samples, initial_state=state)
    return {"parameters": parameters, "warmup": warmup_info, "states": states, "infos": infos}
