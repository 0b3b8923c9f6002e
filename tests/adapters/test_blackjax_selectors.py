"""BlackJAX's names for values, found in its states and infos by type and field."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.chees_adaptation import ChEESAdaptationState
from blackjax.adaptation.mass_matrix import MassMatrixAdaptationState, WelfordAlgorithmState
from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState
from blackjax.adaptation.staged_adaptation import StagedAdaptationState
from blackjax.adaptation.step_size import DualAveragingAdaptationState
from blackjax.mcmc.hmc import HMCState
from blackjax.mcmc.mclmc import MCLMCInfo
from blackjax.mcmc.metrics import LowRankInverseMassMatrix
from blackjax.mcmc.nuts import NUTSInfo
from blackjax.ns.integrator import NSIntegrator
from blackjax.smc.tempered import TemperedSMCState
from blackjax.vi.meanfield_vi import MFVIInfo

import jaxtap as tap
import jaxtap_blackjax as jtb


def of(number: float) -> Any:
    return jnp.float32(number)


CHAIN = HMCState(jnp.array([1.0, 2.0]), of(-3.0), jnp.array([0.1, 0.2]))
DUAL = DualAveragingAdaptationState(of(-1.0), of(-2.0), jnp.int32(5), of(0.0), of(0.1))
DIAGONAL = jnp.array([0.5, 4.0])


def warmup(matrix: Any) -> Any:
    welford = WelfordAlgorithmState(jnp.zeros(2), jnp.ones(2), jnp.int32(3))
    estimate = MassMatrixAdaptationState(jax.tree.map(jnp.zeros_like, matrix), welford)
    return CHAIN, StagedAdaptationState(DUAL, estimate, of(0.25), matrix)


WINDOW = warmup(DIAGONAL)
TREE = NUTSInfo(
    jnp.ones(2),
    jnp.bool_(True),
    jnp.bool_(False),
    of(7.5),
    (),  # pyright: ignore[reportArgumentType]
    (),  # pyright: ignore[reportArgumentType]
    jnp.int32(4),
    jnp.int32(15),
    of(0.9),
)
CHEES = (CHAIN, ChEESAdaptationState(of(0.5), of(-0.7), of(1.25), of(0.2), (), (), jnp.int32(1), jnp.int32(9)))  # pyright: ignore
MCLMC = (CHAIN, MCLMCAdaptationState(of(1.5), of(0.125), DIAGONAL))  # pyright: ignore
PARTICLES = TemperedSMCState(jnp.ones((4, 2)), jnp.array([0.5, 0.5, 0.0, 0.0]), of(0.75))
LOW_RANK = LowRankInverseMassMatrix(jnp.array([1.0, 2.0]), jnp.array([[1.0], [0.0]]), jnp.array([9.0]))


class OlderSMCState(NamedTuple):
    """As `TemperedSMCState` was up to 1.2.5."""

    particles: Any
    weights: Any
    lmbda: Any


OlderSMCState.__name__ = "TemperedSMCState"


class OlderStagedState(NamedTuple):
    """As `StagedAdaptationState` was up to 1.6.0."""

    ss_state: Any
    imm_state: Any
    step_size: Any
    inverse_mass_matrix: Any


OlderStagedState.__name__ = "WindowAdaptationState"
OLDER = (CHAIN, OlderStagedState(*WINDOW[1]))

FOUND = [
    (jtb.step_size, WINDOW, 0.25),
    (jtb.step_size, OLDER, 0.25),
    (jtb.step_size, CHEES, 0.5),
    (jtb.step_size, MCLMC, 0.125),
    (jtb.log_step_size_avg, WINDOW, -2.0),
    (jtb.log_step_size_avg, OLDER, -2.0),
    (jtb.log_step_size_avg, CHEES, -0.7),
    (jtb.inverse_mass_matrix, WINDOW, DIAGONAL),
    (jtb.inverse_mass_matrix, warmup(jnp.eye(2)), jnp.eye(2)),
    (jtb.inverse_mass_matrix, MCLMC, DIAGONAL),
    (jtb.inverse_mass_matrix, warmup(LOW_RANK), tuple(LOW_RANK)),
    (jtb.mass_matrix_condition, WINDOW, 8.0),
    (jtb.mass_matrix_condition, warmup(jnp.array([[2.0, 1.0], [1.0, 2.0]])), 3.0),
    (jtb.mass_matrix_condition, warmup(LOW_RANK), 9.0 / 4.0),
    (jtb.acceptance_rate, TREE, 0.9),
    (jtb.is_divergent, TREE, True),
    (jtb.tree_depth, TREE, 4),
    (jtb.num_integration_steps, TREE, 15),
    (jtb.energy, TREE, 7.5),
    (jtb.energy_change, MCLMCInfo(of(-1.0), of(0.01), of(0.02), jnp.bool_(True)), 0.02),  # pyright: ignore
    (jtb.logdensity, WINDOW, -3.0),
    (jtb.position, WINDOW, CHAIN.position),
    (jtb.trajectory_length, CHEES, 1.25),
    (jtb.mclmc_L, MCLMC, 1.5),
    (jtb.tempering_parameter, PARTICLES, 0.75),
    (jtb.tempering_parameter, OlderSMCState(*PARTICLES), 0.75),
    (jtb.ess, PARTICLES, 2.0),
    (jtb.ess, OlderSMCState(*PARTICLES), 2.0),
    (jtb.elbo, MFVIInfo(of(-4.0)), -4.0),  # pyright: ignore
    (jtb.logz, NSIntegrator(of(-1.0), of(-2.0), of(-0.5)), -2.0),
]


def assert_close(found: Any, value: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(value), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def plus_one(state: Any, _: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, state), None


@pytest.mark.parametrize(("selector", "state", "value"), FOUND, ids=lambda each: repr(each)[:20])
def test_found(selector: Any, state: Any, value: Any) -> None:
    assert_close(selector(state), value)


@pytest.mark.parametrize("selector", [s for s, state, _ in FOUND if state is WINDOW], ids=repr)
@pytest.mark.parametrize("nested", [False, True])
def test_in_a_tap(selector: Any, nested: bool) -> None:
    """In an outermost loop types are known; in one within another, names alone."""

    def loop(state: Any) -> Any:
        return jax.lax.scan(plus_one, state, None, length=2)[0]

    def run() -> Any:
        return jax.lax.map(lambda _: loop(WINDOW), jnp.arange(1)) if nested else loop(WINDOW)

    with tap.record(select=selector, where="plus_one") as rec:
        run()
    expected = selector(jax.tree.map(lambda x: x + 1, WINDOW))
    assert len(rec.events) == 2
    assert_close(rec.events[0].value, expected)


def test_a_missing_field_names_those_that_exist() -> None:
    text = "there is no tree_depth here, which is NUTSInfo.num_trajectory_expansions or num_trajectory_expansions;"
    with pytest.raises(tap.SelectError, match=re.escape(text)) as told:
        jtb.tree_depth(WINDOW)
    assert "HMCState.logdensity" in str(told.value) and "StagedAdaptationState.step_size" in str(told.value)
