"""What is not a chain: NUTS's doublings, SMC, variational inference, nested sampling, Pathfinder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxtap_blackjax as jtb
from jaxtap.testing import assert_identical

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def blackjax_defaults() -> Iterator[None]:
    """BlackJAX is not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def prior(x: Any) -> Any:
    return -0.5 * jnp.sum(x**2)


def likelihood(x: Any) -> Any:
    return -0.5 * jnp.sum((3.0 * (x - 1.0)) ** 2)


class Said(NamedTuple):
    """What a program returns, and what BlackJAX says by column, one value a step."""

    result: Any
    by_column: dict[str, Any]


INNER = {"step_size": 0.1, "inverse_mass_matrix": jnp.ones(2), "num_integration_steps": 2}


def smc_steps(sampler: Any, schedule: tuple[Any, ...], *more: Any) -> tuple[Any, list[Any], list[Any]]:
    """A Python loop over a jitted step, as users of SMC write it."""
    state, states, infos = sampler.init(jax.random.normal(KEY, (16, 2)), *more), [], []
    step = jax.jit(sampler.step)
    for i, arguments in enumerate(schedule):
        state, info = step(jax.random.fold_in(KEY, i), state, *arguments)
        states.append(state)
        infos.append(info)
    return state, states, infos


def inner() -> tuple[Any, ...]:
    return blackjax.hmc.build_kernel(), blackjax.hmc.init, blackjax.smc.extend_params(INNER)


def tempered(adaptive: bool) -> Said:
    resampling = blackjax.smc.resampling.systematic
    if adaptive:
        sampler = blackjax.adaptive_tempered_smc(prior, likelihood, *inner(), resampling, 0.5, num_mcmc_steps=2)
        schedule: tuple[Any, ...] = ((), (), ())
    else:
        sampler = blackjax.tempered_smc(prior, likelihood, *inner(), resampling, num_mcmc_steps=2)
        schedule = ((0.25,), (0.5,), (1.0,))
    state, states, infos = smc_steps(sampler, schedule)
    increments = [float(info.log_likelihood_increment) for info in infos]
    said = {
        "tempering_parameter": [float(s.tempering_param) for s in states],
        "ess": [1 / float(jnp.sum(s.weights**2)) for s in states],
        "acceptance_rate": [float(info.update_info.acceptance_rate.mean()) for info in infos],
        "log_evidence_increment": increments,
        "log_evidence": np.cumsum(increments),
    }
    return Said(state, said)


def persistent() -> Said:
    resampling = blackjax.smc.resampling.systematic
    sampler = blackjax.persistent_sampling_smc(prior, likelihood, 4, *inner(), resampling, num_mcmc_steps=2)
    state, states, _ = smc_steps(sampler, ((0.25,), (0.5,), (1.0,)))
    return Said(
        jax.tree.leaves(state),
        {
            "tempering_parameter": [0.25, 0.5, 1.0],
            "log_evidence": [float(s.persistent_log_Z[s.iteration]) for s in states],
        },
    )


def partial() -> Said:
    """The likelihood of more and more of the data."""
    data = jnp.linspace(0.0, 2.0, 4)

    def posterior(mask: Any) -> Any:
        return lambda x: prior(x) - 0.5 * jnp.sum(mask * jnp.sum((data[:, None] - x) ** 2, axis=1))

    resampling = blackjax.smc.resampling.systematic
    step, init, parameters = inner()
    sampler = blackjax.partial_posteriors_smc(
        step, init, parameters, resampling, 2, partial_logposterior_factory=posterior
    )
    masks = [jnp.where(jnp.arange(4) < n, 1.0, 0.0) for n in (1, 2, 4)]
    state, states, infos = smc_steps(sampler, tuple((mask,) for mask in masks), 4)
    said = {
        "data_share": [0.25, 0.5, 1.0],
        "ess": [1 / float(jnp.sum(s.weights**2)) for s in states],
        "acceptance_rate": [float(info.update_info.acceptance_rate.mean()) for info in infos],
        "log_evidence_increment": [float(info.log_likelihood_increment) for info in infos],
    }
    return Said(state, said)


def vi(algorithm: Any) -> Said:
    made = algorithm(likelihood, optax.adam(0.1), 10)
    start = made.init(jnp.ones(2))
    last, infos = jax.lax.scan(lambda s, key: made.step(key, s), start, jax.random.split(KEY, 5))
    return Said(last, {"elbo": infos.elbo})


def nested() -> Said:
    sampler = blackjax.nss(prior, likelihood, num_delete=2, num_inner_steps=3)
    state, evidence = sampler.init(jax.random.normal(KEY, (20, 2))), []
    step = jax.jit(sampler.step)
    for i in range(3):
        state, _ = step(jax.random.fold_in(KEY, i), state)
        evidence.append(state.integrator)
    said = {
        "logz": [float(e.logZ) for e in evidence],
        "remaining": [float(e.logZ_live - e.logZ) for e in evidence],
        "num_live": [20] * 3,
    }
    return Said(jax.tree.leaves(state.particles), said)


def pathfinder() -> Said:
    state, info = blackjax.pathfinder.approximate(KEY, lambda x: prior(x) + likelihood(x), jnp.ones(2))
    return Said((state.position, state.elbo), {"elbo": info.path.elbo[jnp.isfinite(info.path.elbo)]})


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Said]]] = {
    "tempered": (jtb.watch_smc, lambda: tempered(False)),
    "adaptive tempered": (jtb.watch_smc, lambda: tempered(True)),
    "persistent": (jtb.watch_smc, persistent),
    "partial posteriors": (jtb.watch_smc, partial),
    "mean field": (jtb.watch_vi, lambda: vi(blackjax.meanfield_vi)),
    "full rank": (jtb.watch_vi, lambda: vi(blackjax.fullrank_vi)),
    "nested": (jtb.watch_nested, nested),
    "pathfinder": (jtb.watch_pathfinder, pathfinder),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_bits(name: str) -> None:
    context, program = PROGRAMS[name]
    bare = program()
    with context() as seen:
        said = program()
    assert_identical(said.result, bare.result)
    for column, values in said.by_column.items():
        got = [row[column] for row in seen.rows if column in row.values]
        np.testing.assert_allclose(got, values, rtol=1e-5, atol=1e-6, err_msg=column)
    assert not seen.trips


def test_doublings_are_those_of_the_info() -> None:
    nuts = blackjax.nuts(likelihood, 0.2, jnp.ones(2))
    starts = jax.random.normal(KEY, (3, 2))

    def program() -> Any:
        return jax.vmap(nuts.step)(jax.random.split(KEY, 3), jax.vmap(nuts.init)(starts))

    bare = program()
    with jtb.watch_trajectory() as seen:
        state, info = program()
    assert_identical((state, info), bare)
    for chain in range(3):
        rows = [row for row in seen.rows if row.lane == (chain,)]
        assert [row["depth"] for row in rows] == list(range(1, int(info.num_trajectory_expansions[chain]) + 1))
        assert [row["is_turning"] for row in rows] == [False] * (len(rows) - 1) + [bool(info.is_turning[chain])]
        assert sum(row["num_states"] for row in rows) == int(info.num_integration_steps[chain])
        assert {row["direction"] for row in rows} <= {-1, 1}


def test_pathfinder_stops_where_it_has_converged() -> None:
    with jtb.watch_pathfinder() as seen:
        pathfinder()
    steps = [row for row in seen.rows if "value" in row.values]
    assert 0 < len(steps) < 30 and [row.step for row in steps] == list(range(len(steps)))
    values = [row["value"] for row in steps]
    assert values == sorted(values, reverse=True)


def test_several_paths_are_lanes() -> None:
    starts = jnp.array([[1.0, 1.0], [0.0, 0.5], [-1.0, 2.0]])

    def program() -> Any:
        return blackjax.vi.multipathfinder.multi_approximate(KEY, lambda x: prior(x) + likelihood(x), starts)[0]

    bare = program()
    with jtb.watch_pathfinder() as seen:
        state = program()
    assert_identical((state.samples, state.logp), (bare.samples, bare.logp))
    for lane, elbo in enumerate(state.path_states.elbo):
        rows = [row for row in seen.rows if row.lane == (lane,)]
        assert max(row["elbo"] for row in rows if "elbo" in row.values) == pytest.approx(float(elbo), rel=1e-5)
        values = [row["value"] for row in rows if "value" in row.values]
        assert 0 < len(values) < 30 and values == sorted(values, reverse=True)
