"""Posteriors that people sample, each with where its chains begin."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import cauchy, norm

HERE = Path(__file__).parent
Density = Callable[[Any], Any]


def columns(path: Path, *names: str) -> list[jax.Array]:
    """Columns of numbers of a CSV file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [jnp.array([float(row[name]) for row in rows]) for name in names]


def eight_schools(centred: bool) -> tuple[Density, Any]:
    """Rubin's eight schools (1981): effects of their own around a common mean."""
    estimates, errors = columns(HERE.parents[1] / "demo" / "eight_schools.csv", "estimate", "standard_error")

    def logdensity(position: dict[str, Any]) -> Any:
        mu, log_tau, theta = position["mu"], position["log_tau"], position["theta"]
        tau = jnp.exp(log_tau)
        prior = norm.logpdf(mu, 0, 5) + cauchy.logpdf(tau, 0, 5) + log_tau
        effects = theta if centred else mu + tau * theta
        own = norm.logpdf(theta, mu, tau) if centred else norm.logpdf(theta)
        return prior + own.sum() + norm.logpdf(estimates, effects, errors).sum()

    return logdensity, {"mu": jnp.float32(4.0), "log_tau": jnp.float32(1.0), "theta": jnp.zeros(8)}


def funnel() -> tuple[Density, Any]:
    """Neal's funnel (2003) in ten dimensions: nine scales hang on one parameter."""

    def logdensity(x: Any) -> Any:
        return norm.logpdf(x[0], 0, 3) + norm.logpdf(x[1:], 0, jnp.exp(x[0] / 2)).sum()

    return logdensity, jnp.ones(10)


def correlated() -> tuple[Density, Any]:
    """A Gaussian of 100 dimensions, every two of them correlated by 0.9."""
    precision = jnp.linalg.inv(0.1 * jnp.eye(100) + 0.9 * jnp.ones((100, 100)))
    return lambda x: -0.5 * x @ precision @ x, jnp.linspace(-1.0, 1.0, 100)


def banana() -> tuple[Density, Any]:
    """A twisted Gaussian (Haario, Saksman and Tamminen, 1999)."""

    def logdensity(x: Any) -> Any:
        return norm.logpdf(x[0], 0, 3) + norm.logpdf(x[1], 0.1 * (x[0] ** 2 - 9), 1) + norm.logpdf(x[2:]).sum()

    return logdensity, jnp.ones(4)


def challenger() -> tuple[Density, Any]:
    """Logistic regression of O-ring distress on temperature, 23 flights (Dalal, Fowlkes and Hoadley, 1989)."""
    temperature, distress = columns(HERE / "challenger.csv", "temperature", "distress")
    scaled = (temperature - 70.0) / 7.0

    def logdensity(x: Any) -> Any:
        logit = x[0] + x[1] * scaled
        return (distress * logit - jnp.logaddexp(0.0, logit)).sum() + norm.logpdf(x, 0, 5).sum()

    return logdensity, jnp.zeros(2)
