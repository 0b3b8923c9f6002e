"""BlackJAX's samplers under jaxtap_blackjax: rows, values equal to BlackJAX's own, bits, and nothing left behind."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters.conformance import QUICK, conforms, rows_of
from adapters.samplers import ALGORITHMS, CHAINS, DIMENSIONS, KEY, START, STARTS, STEPS, WARMUPS, density, sampled

import jaxtap as tap
import jaxtap_blackjax
from jaxtap.testing import assert_identical


@pytest.fixture(autouse=True)
def blackjax_defaults() -> Iterator[None]:
    """BlackJAX is not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("name", QUICK)
def test_warmups(name: str) -> None:
    seen = conforms(jaxtap_blackjax.watch_warmup, WARMUPS[name])
    assert len(seen.rows) == len({(row.step, row.lane) for row in seen.rows})


@pytest.mark.parametrize("name", ["window, nuts", "chees", "vmap of window"])
def test_warmups_by_what_they_return(name: str) -> None:
    own = functools.partial(jaxtap_blackjax.watch_warmup, hooks=False)
    seen = conforms(own, WARMUPS[name])
    assert len(seen.rows) == len({(row.step, row.lane) for row in seen.rows})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_sampling(name: str) -> None:
    seen = conforms(jaxtap_blackjax.watch_sampling, lambda: sampled(name))
    assert [row.step for row in seen.rows] == list(range(STEPS)) and {row.total for row in seen.rows} == {STEPS}


def hmc(jit: bool = True) -> Any:
    algorithm = blackjax.hmc(density, 0.3, jnp.ones(DIMENSIONS), 3)
    return algorithm._replace(step=jax.jit(algorithm.step)) if jit else algorithm


def positions_alone() -> Any:
    """A user's own scan that drops the info."""
    algorithm = hmc(jit=False)

    def one(state: Any, key: Any) -> Any:
        state, _ = algorithm.step(key, state)
        return state, state.position

    return jax.lax.scan(one, algorithm.init(START), jax.random.split(KEY, 6))[1]


def in_python() -> Any:
    """A Python loop over a jitted step."""
    algorithm, state = hmc(), hmc().init(START)
    for key in jax.random.split(KEY, 6):
        state, _ = algorithm.step(key, state)
    return state.position


def run_inference() -> Any:
    """The library's own loop."""
    algorithm = hmc(jit=False)
    return blackjax.util.run_inference_algorithm(
        rng_key=KEY, inference_algorithm=algorithm, num_steps=6, initial_position=START
    )[1][0].position


def chains_in_step() -> Any:
    """A scan over a vmapped step."""
    algorithm = hmc(jit=False)

    def one(states: Any, key: Any) -> Any:
        states, _ = jax.vmap(algorithm.step)(jax.random.split(key, CHAINS), states)
        return states, states.position

    return jax.lax.scan(one, jax.vmap(algorithm.init)(STARTS), jax.random.split(KEY, 6))[1]


@pytest.mark.parametrize(
    ("program", "lanes"),
    [(positions_alone, 1), (in_python, 1), (run_inference, 1), (chains_in_step, CHAINS)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_loops_of_all_kinds(program: Callable[[], Any], lanes: int) -> None:
    bare = program()
    with jaxtap_blackjax.watch_sampling() as seen:
        result = program()
    assert_identical(result, bare)
    assert [(row.step, row.lane) for row in rows_of(seen)] == [
        (step, (lane,) if lanes > 1 else ()) for step in range(6) for lane in range(lanes)
    ]
    moved = np.linalg.norm(np.asarray(result), axis=-1).reshape(-1)
    np.testing.assert_allclose([row["position_norm"] for row in rows_of(seen)][-moved.size :], moved, rtol=1e-5)


def test_warm_sampler_is_seen_and_nothing_stays() -> None:
    from blackjax.mcmc import hmc as module  # noqa: PLC0415 - its own attributes are looked at

    own = dict(vars(module))
    adaptation = blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=3)
    step = hmc().step
    adaptation.run(KEY, START, 5)
    step(KEY, hmc().init(START))
    clean = jax.make_jaxpr(step)(KEY, hmc().init(START))
    for _ in range(2):
        with jaxtap_blackjax.watch_warmup(tripwires=False) as warmup, jaxtap_blackjax.watch_sampling() as sampling:
            adaptation.run(KEY, START, 5)
            step(KEY, hmc().init(START))
        assert len(warmup.rows) == 5 and len(sampling.rows) == 6
        assert vars(module) == own
        adaptation.run(KEY, START, 5)
        step(KEY, hmc().init(START))
        assert len(warmup.rows) == 5 and len(sampling.rows) == 6
        again = jax.make_jaxpr(step)(KEY, hmc().init(START))
        assert not again.effects and str(again) == str(clean)


def test_what_one_context_has_compiled_serves_the_next() -> None:
    traces: list[int] = []

    def counted(x: Any) -> Any:
        traces.append(1)
        return density(x)

    algorithm = blackjax.hmc(counted, 0.3, jnp.ones(DIMENSIONS), 3)
    step, state = jax.jit(algorithm.step), algorithm.init(START)
    counts: list[int] = []
    for _ in range(3):
        before = len(traces)
        with jaxtap_blackjax.watch_sampling():
            step(KEY, state)
        step(KEY, state)
        counts.append(len(traces) - before)
    assert counts[0] > 0 and counts[1:] == [0, 0]


def test_a_warmup_that_such_a_context_has_compiled_before_lacks_nothing() -> None:
    adaptation = blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=3)
    run = jax.jit(lambda key: adaptation.run(key, START, 5)[0].state)
    for _ in range(2):
        with jaxtap_blackjax.watch_warmup(tripwires=False) as seen:
            run(KEY)
        assert len(seen.rows) == 5 and not seen.report().notes


def test_extra_leaves_sampling_rate_and_the_wrapping_form() -> None:
    adaptation = blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=3)
    seen = jaxtap_blackjax.watch_warmup(
        select=["wc_state.mean", jaxtap_blackjax.inverse_mass_matrix, "proposal.position"], sample_every=4
    )
    with seen:
        _, info = adaptation.run(KEY, START, STEPS)
    assert [row.step for row in seen.rows] == list(range(0, STEPS, 4))
    for row in seen.rows:
        state = jax.tree.map(lambda leaf, row=row: leaf[row.step], info)
        np.testing.assert_array_equal(row["wc_state.mean"], state.adaptation_state.imm_state.wc_state.mean)
        np.testing.assert_array_equal(row["inverse_mass_matrix"], state.adaptation_state.inverse_mass_matrix)
        np.testing.assert_array_equal(row["proposal.position"], state.info.proposal.position)
    rows: list[Any] = []
    run = jaxtap_blackjax.watch_sampling(positions_alone, on_row=rows.append)
    assert_identical(run(), positions_alone())
    assert [row.step for row in rows] == list(range(6))


def test_stages_are_those_of_the_schedule() -> None:
    from blackjax.adaptation.window_adaptation import build_schedule  # noqa: PLC0415 - beside its use

    with jaxtap_blackjax.watch_warmup(tripwires=False) as seen:
        blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=2).run(KEY, START, 200)
    schedule = np.asarray(build_schedule(200))
    named = ["window end" if end else ("slow" if slow else "fast") for slow, end in schedule]
    assert [row["stage"] for row in seen.rows] == named and named.count("window end") == 2


def test_what_was_not_seen_is_said() -> None:
    nothing = "watch_smc has seen nothing. It looked for steps of tempered"
    with pytest.warns(tap.JaxtapWarning, match=nothing), jaxtap_blackjax.watch_smc():
        jnp.ones(3)
    with pytest.raises(TypeError, match="watch_sampling has no option 'selct'; it has tripwires, sample_every"):
        jaxtap_blackjax.watch_sampling(selct="x")  # pyright: ignore
    with pytest.raises(TypeError, match="select must be the name of a leaf"):
        jaxtap_blackjax.watch_warmup(select=3)
    with pytest.raises(ValueError, match=re.escape("capacity must be an integer of at least 1")):
        jaxtap_blackjax.watch_warmup(capacity=0)


def test_core_events_of_loops_that_none_knows() -> None:
    with tap.record(select=jaxtap_blackjax.logdensity) as rec:
        positions_alone()
    paths = {event.path for event in rec.events}
    assert len(paths) == 2 and all(re.fullmatch(r"scan\[0\](/scan\[\d\])?", path) for path in paths)
