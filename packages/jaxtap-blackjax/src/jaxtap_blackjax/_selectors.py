"""What BlackJAX calls things: selectors by name, found by the type of the state or info and its field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap.internal import Field, Selector
from jaxtap_blackjax._metric import condition_number


def _of(field: str, *types: str) -> tuple[Field, ...]:
    return tuple((each, field) for each in types)


# `WindowAdaptationState` is what BlackJAX up to 1.6.0 calls `StagedAdaptationState`.
_STAGED = ("StagedAdaptationState", "WindowAdaptationState")
_ADAPTATION = (
    *_STAGED,
    "PathfinderAdaptationState",
    "LowRankAdaptationState",
    "ChEESAdaptationState",
    "MEADSAdaptationState",
    "MCLMCAdaptationState",
    "MCLMCLRDAdaptationState",
)
_STATES = (
    "HMCState",
    "DynamicHMCState",
    "GHMCState",
    "MALAState",
    "BarkerState",
    "RWState",
    "SliceState",
    "EllipSliceState",
    "LaplaceHMCState",
    "LaplaceDynamicHMCState",
    "GISTState",
    "PeriodicOrbitalState",
    "IntegratorState",
)
_ACCEPTING = ("NUTSInfo", "HMCInfo", "LaplaceHMCInfo", "GISTInfo", "MALAInfo", "BarkerInfo", "RWInfo", "MarginalInfo")
_TRAJECTORIES = ("NUTSInfo", "HMCInfo", "LaplaceHMCInfo", "GISTInfo")
_SMC = ("TemperedSMCState", "PersistentSMCState", "SMCState", "PartialPosteriorsSMCState")


def _effective(leaves: Sequence[Any]) -> Any:
    """Effective sample size of normalised weights, `1 / sum(w**2)` (Kong 1992), as `blackjax.smc.ess` has it."""
    return 1.0 / jnp.sum(jnp.square(leaves[0]))


def _matrix(leaves: list[Any]) -> Any:
    """The matrix as BlackJAX keeps it: a diagonal, a dense matrix, or `(sigma, U, lam)`."""
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


step_size = Selector("step_size", (*_of("step_size", *_ADAPTATION), ("", "step_size")))
log_step_size_avg = Selector(
    "log_step_size_avg",
    (
        *_of("ss_state.log_step_size_avg", *_STAGED, "PathfinderAdaptationState", "LowRankAdaptationState"),
        ("ChEESAdaptationState", "log_step_size_moving_average"),
        ("DualAveragingAdaptationState", "log_step_size_avg"),
        ("", "ss_state.log_step_size_avg"),
        ("", "log_step_size_moving_average"),
        ("", "log_step_size_avg"),
    ),
)
_IN_USE = (*_of("inverse_mass_matrix", *_ADAPTATION),)
inverse_mass_matrix = Selector("inverse_mass_matrix", (*_IN_USE, ("", "1.inverse_mass_matrix")), _matrix)
mass_matrix_condition = Selector(
    "mass_matrix_condition", (*_IN_USE, ("", "1.inverse_mass_matrix")), lambda leaves: condition_number(_matrix(leaves))
)
acceptance_rate = Selector("acceptance_rate", (*_of("acceptance_rate", *_ACCEPTING), ("", "acceptance_rate")))
is_divergent = Selector("is_divergent", (*_of("is_divergent", *_TRAJECTORIES), ("", "is_divergent")))
tree_depth = Selector("tree_depth", (("NUTSInfo", "num_trajectory_expansions"), ("", "num_trajectory_expansions")))
num_integration_steps = Selector(
    "num_integration_steps", (*_of("num_integration_steps", *_TRAJECTORIES), ("", "num_integration_steps"))
)
energy = Selector("energy", (*_of("energy", *_TRAJECTORIES), ("", "info.energy"), ("", "1.energy")))
energy_change = Selector("energy_change", (("MCLMCInfo", "energy_change"), ("", "energy_change")))
logdensity = Selector("logdensity", (*_of("logdensity", *_STATES, "MCLMCInfo"), ("", "0.logdensity")))
position = Selector("position", (*_of("position", *_STATES), ("", "0.position")), _matrix)
trajectory_length = Selector(
    "trajectory_length", (("ChEESAdaptationState", "trajectory_length"), ("", "trajectory_length"))
)
mclmc_L = Selector("mclmc_L", (*_of("L", "MCLMCAdaptationState", "MCLMCLRDAdaptationState"), ("", "1.L")))
tempering_parameter = Selector(
    "tempering_parameter",
    (*_of("tempering_param", *_SMC), *_of("lmbda", *_SMC), ("", "tempering_param"), ("", "lmbda")),
)
ess = Selector("ess", (*_of("weights", *_SMC), ("", "weights")), _effective)
elbo = Selector("elbo", (*_of("elbo", "MFVIInfo", "FRVIInfo", "PathfinderState"), ("", "elbo")))
logz = Selector("logz", (("NSIntegrator", "logZ"), ("", "integrator.logZ"), ("", "logZ")))
