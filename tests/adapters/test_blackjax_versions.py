"""What every release of BlackJAX from 1.2.5 on has: window adaptation, NUTS and MCLMC, by the same names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap as tap
import jaxtap_blackjax

KEY, START, STEPS = jax.random.key(0), jnp.ones(20), 24


@pytest.fixture(autouse=True)
def blackjax_defaults() -> Iterator[None]:
    """BlackJAX is not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def density(x: Any) -> Any:
    return -0.5 * jnp.sum(jnp.square(x))


def test_window_adaptation_of_nuts() -> None:
    adaptation = blackjax.window_adaptation(blackjax.nuts, density, max_num_doublings=3)
    bare = adaptation.run(KEY, START, STEPS)
    with jaxtap_blackjax.watch_warmup(tripwires=False) as seen, tap.record(select=jaxtap_blackjax.step_size) as rec:
        (state, _), info = adaptation.run(KEY, START, STEPS)
    jax.tree.map(np.testing.assert_array_equal, state, bare[0].state)
    for column, values in {
        "step_size": info.adaptation_state.step_size,
        "tree_depth": info.info.num_trajectory_expansions,
        "num_integration_steps": info.info.num_integration_steps,
        "is_divergent": info.info.is_divergent,
        "energy": info.info.energy,
        "acceptance_rate": info.info.acceptance_rate,
        "logdensity": info.state.logdensity,
    }.items():
        np.testing.assert_allclose([row[column] for row in seen.rows], values, rtol=1e-5, err_msg=column)
    assert {row["stage"] for row in seen.rows} == {"fast", "slow", "window end"}
    assert {row["tree_depth_limit"] for row in seen.rows} == {3}
    np.testing.assert_array_equal([event.value for event in rec.events], info.adaptation_state.step_size)


def test_mclmc() -> None:
    algorithm = blackjax.mclmc(density, 1.0, 0.3)

    def program() -> Any:
        start = algorithm.init(START, jax.random.key(2))
        return jax.lax.scan(lambda state, key: algorithm.step(key, state), start, jax.random.split(KEY, STEPS))

    bare = program()
    with jaxtap_blackjax.watch_sampling(tripwires=False) as seen:
        state, info = program()
    np.testing.assert_array_equal(state.position, bare[0].position)
    for column, values in {"energy_change": info.energy_change, "logdensity": info.logdensity}.items():
        np.testing.assert_allclose([row[column] for row in seen.rows], values, rtol=1e-4, atol=1e-5, err_msg=column)
