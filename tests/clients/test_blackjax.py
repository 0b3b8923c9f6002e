"""Real runs of BlackJAX under jaxtap_blackjax, and the warmups that take long to compile."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import posteriors
import pytest
from adapters import samplers
from adapters.conformance import QUICK, conforms

import jaxtap_blackjax
from jaxtap.testing import assert_identical


class Run(NamedTuple):
    """A warmup and the sampling after it, and what BlackJAX says of both."""

    parameters: Any
    warmup: Any
    states: Any
    infos: Any


def run(logdensity: Any, start: Any, seed: int = 0, steps: int = 200, target: float = 0.8) -> Run:
    """NUTS as its users run it."""
    adapt, sample = jax.random.split(jax.random.key(seed))
    adaptation = blackjax.window_adaptation(blackjax.nuts, logdensity, target_acceptance_rate=target)
    (state, parameters), warmup = adaptation.run(adapt, start, steps)
    kernel = blackjax.nuts(logdensity, **parameters)

    def one_step(state: Any, key: Any) -> Any:
        state, info = kernel.step(key, state)
        return state, (state, info)

    _, (states, infos) = jax.lax.scan(one_step, state, jax.random.split(sample, steps))
    return Run(parameters, warmup, states, infos)


def watched(program: Callable[[], Run]) -> tuple[Run, Any, Any]:
    """A run and what the two contexts have seen of it: the warmup's loop, and all transitions."""
    with jaxtap_blackjax.watch_warmup() as warmup, jaxtap_blackjax.watch_sampling() as sampling:
        found = program()
    return found, warmup, sampling


def assert_equal(rows: list[Any], info: Any) -> None:
    """Depths, steps and divergences are those of BlackJAX's own info."""
    for column, field in (
        ("tree_depth", "num_trajectory_expansions"),
        ("num_integration_steps", "num_integration_steps"),
        ("is_divergent", "is_divergent"),
    ):
        np.testing.assert_array_equal([row[column] for row in rows], getattr(info, field), err_msg=column)


POSTERIORS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "eight schools, centred": (lambda: posteriors.eight_schools(True), {"steps": 300}),
    "eight schools, non-centred": (lambda: posteriors.eight_schools(False), {"steps": 300, "target": 0.95}),
    "funnel": (posteriors.funnel, {"steps": 300, "target": 0.6}),
    "correlated Gaussian": (posteriors.correlated, {"steps": 150}),
    "banana": (posteriors.banana, {"steps": 200, "target": 0.95}),
    "logistic regression": (posteriors.challenger, {"steps": 300}),
}
DIVERGING = ("eight schools, centred",)


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors(name: str) -> None:
    make, options = POSTERIORS[name]
    logdensity, start = make()
    bare = run(logdensity, start, **options)
    found, warmup, sampling = watched(lambda: run(logdensity, start, **options))
    rows = [row for row in sampling.rows if row.path == sampling.rows[-1].path]
    assert_identical(found, bare)
    assert_equal(warmup.rows, found.warmup.info)
    assert_equal(rows, found.infos)
    assert warmup.rows[-1]["step_size_avg"] == pytest.approx(float(found.parameters["step_size"]), rel=1e-6)
    diverged = sum(row["is_divergent"] for row in rows)
    assert diverged == int(found.infos.is_divergent.sum())
    if name == "funnel":
        # Whether a short run diverges there is chance; that its energies hardly move is not.
        assert {trip.tripwire for trip in sampling.trips} & {"divergence", "energy_fraction"}
    else:
        assert (diverged > 0) == (name in DIVERGING), diverged


def test_a_chain_that_begins_at_nan_is_named(capfd: Any) -> None:
    logdensity, _ = posteriors.banana()
    starts = jax.random.normal(jax.random.key(1), (8, 4)).at[5].set(jnp.nan)
    adaptation = blackjax.window_adaptation(blackjax.nuts, logdensity, max_num_doublings=5)

    def program() -> Any:
        return jax.vmap(lambda key, x: adaptation.run(key, x, 80))(jax.random.split(jax.random.key(0), 8), starts)

    bare = program()
    with jaxtap_blackjax.watch_warmup() as warmup:
        found = program()
    assert_identical(found, bare)
    for chain in range(8):
        own = jax.tree.map(operator.itemgetter(chain), found[1].info)
        assert_equal([row for row in warmup.rows if row.lane == (chain,)], own)
    assert warmup.summary()["first_trip"]["lane"] == (5,)
    assert {trip.tripwire for trip in warmup.trips if trip.row.lane == (5,)} >= {
        "logdensity_not_finite",
        "chain_apart",
    }
    assert "[tap] FAIL scan[0] 0/80 lane (5,): logdensity nan" in capfd.readouterr().err


@pytest.mark.parametrize("name", [name for name in samplers.WARMUPS if name not in QUICK])
@pytest.mark.filterwarnings("ignore:build_multi_chain_meta_core:UserWarning", "ignore:metric='auto':UserWarning")
def test_warmups_that_compile_slowly(name: str) -> None:
    seen = conforms(jaxtap_blackjax.watch_warmup, samplers.WARMUPS[name])
    # MCLMC's last stage tunes by its draws: its loop has no step size in its state.
    tuned = [row for row in seen.rows if "step_size" in row.values]
    assert tuned and (len(tuned) == len(seen.rows) or name == "mclmc")
