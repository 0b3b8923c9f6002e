"""With `sample_every=`, a step in which a tripwire on a single value fires is sent all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap
import jaxtap_blackjax
from jaxtap.internal import OnColumn, Outside
from jaxtap.testing import assert_identical
from jaxtap_blackjax._arviz import statistics_of

EVERY, STEPS = 10, 100
KEYS = jax.random.split(jax.random.key(1), STEPS)


@pytest.fixture(autouse=True)
def blackjax_defaults() -> Iterator[None]:
    """BlackJAX is not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def funnel(x: Any) -> Any:
    return -(x[0] ** 2) / 18 - jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) / 2 - x[0] * (x.size - 1) / 2


HMC = blackjax.hmc(funnel, 0.9, jnp.ones(4), 8)
START = HMC.init(jnp.full(4, 0.1))
STARTS = jax.vmap(HMC.init)(jnp.full((3, 4), 0.1))


def one(state: Any, key: Any) -> Any:
    state, info = HMC.step(key, state)
    return state, info.is_divergent


def scanned(state: Any, keys: Any) -> Any:
    return lax.scan(one, state, keys)


def looped(state: Any, keys: Any) -> Any:
    def step(carry: Any) -> Any:
        i, state, found = carry
        state, bad = one(state, keys[i])
        return i + 1, state, found.at[i].set(bad)

    return lax.while_loop(lambda c: c[0] < STEPS, step, (0, state, jnp.zeros(STEPS, bool)))[1:]


def stepwise(state: Any, keys: Any) -> Any:
    step, found = jax.jit(one), []
    for key in keys:
        state, bad = step(state, key)
        found.append(bad)
    return state, jnp.stack(found)


WAYS: dict[str, Any] = {
    "scan": lambda: scanned(START, KEYS),
    "jit": lambda: jax.jit(scanned)(START, KEYS),
    "while": lambda: jax.jit(looped)(START, KEYS),
    "vmap": lambda: jax.jit(jax.vmap(scanned))(STARTS, jax.random.split(jax.random.key(2), (3, STEPS))),
}


def steps_of(rows: Any) -> set[tuple[Any, int]]:
    return {(row.lane, row.step) for row in rows}


@pytest.mark.parametrize("way", WAYS)
def test_every_divergence_is_sent(way: str) -> None:
    bare = WAYS[way]()
    with jaxtap_blackjax.watch_sampling(sample_every=EVERY) as seen:
        assert_identical(WAYS[way](), bare)
    found = np.asarray(bare[1])
    divergent = {(tuple(map(int, at[:-1])), int(at[-1])) for at in np.argwhere(found)}
    assert 3 < len(divergent) < found.size / 2
    assert steps_of(row for row in seen.rows if row["is_divergent"]) == divergent
    lanes = list(np.ndindex(found.shape[:-1]))
    steps = {step for _, step in divergent} | set(range(0, STEPS, EVERY))
    assert steps_of(seen.rows) == {(lane, step) for lane in lanes for step in steps}
    assert all(row.between == (row.step % EVERY != 0) for row in seen.rows)
    for lane in lanes:
        own = [row.step for row in seen.rows if row.lane == lane]
        assert own == sorted(own)
        first = [trip.row.step for trip in seen.trips if trip.tripwire == "divergence" and trip.row.lane == lane]
        assert first == [min(step for each, step in divergent if each == lane)]
    summary = seen.summary()
    regular = [row["acceptance_rate"] for row in seen.rows if row.lane == lanes[0] and not row.between]
    assert summary["divergences"] == len(divergent) and summary["per_chain"][0]["acceptance_rate"] == np.mean(regular)
    assert statistics_of(seen.rows)["diverging"].shape == (len(lanes), STEPS // EVERY)


def test_outside_of_loops_all_steps_are_sent() -> None:
    with jaxtap_blackjax.watch_sampling(sample_every=EVERY) as seen:
        stepwise(START, KEYS[:25])
    assert len(seen.rows) == 25 and not any(row.between for row in seen.rows)


def test_rules_that_need_the_steps_before_pass_over_such_rows() -> None:
    wires = [jaxtap_blackjax.divergence(), jaxtap_blackjax.divergence_rate(rate=0.5, window=4)]
    with jaxtap_blackjax.watch_sampling(sample_every=EVERY, tripwires=wires) as seen:
        scanned(START, KEYS)
    bad = [bool(row["is_divergent"]) for row in seen.rows if not row.between]
    assert all(sum(bad[i : i + 4]) < 2 for i in range(len(bad))) and any(row.between for row in seen.rows)
    assert [trip.tripwire for trip in seen.trips] == ["divergence"]


def test_in_a_warmup_and_where_it_is_told_at_once() -> None:
    warmup = blackjax.window_adaptation(blackjax.hmc, funnel, num_integration_steps=8)
    bare = warmup.run(jax.random.key(3), jnp.ones(4), STEPS)
    rows: list[Any] = []
    wires = [jaxtap_blackjax.divergence(), *jaxtap_blackjax.non_finite()]
    with jaxtap_blackjax.watch_warmup(sample_every=25, tripwires=wires, on_row=rows.append) as seen:
        assert_identical(warmup.run(jax.random.key(3), jnp.ones(4), STEPS), bare)
    found = np.flatnonzero(bare[1].info.is_divergent).tolist()
    assert [row.step for row in seen.rows if row["is_divergent"]] == found and found
    assert [row.step for row in seen.rows if "step_size" in row.values] == [0, 25, 50, 75]
    # A row that nothing else is to come of is complete when it comes.
    assert [row.step for row in rows] == [row.step for row in seen.rows]


@dataclasses.dataclass
class Odd:
    """A tripwire that can be no key of a cache, and fails while it is traced."""

    name: str = "odd"

    def start(self) -> Any:
        return lambda row: ()

    def at_once(self, values: Mapping[str, Any]) -> Any:
        raise RuntimeError("odd")


def test_tripwires_of_ones_own() -> None:
    low = OnColumn("low", "acceptance_rate", Outside(low=0.05), "accepts {value:.2f}")
    with jaxtap_blackjax.watch_sampling(sample_every=EVERY, tripwires=[low]) as seen:
        _, info = lax.scan(lambda s, k: HMC.step(k, s), START, KEYS)
    assert [row.step for row in seen.rows if row.between] == [
        i for i in np.flatnonzero(np.asarray(info.acceptance_rate) < 0.05) if i % EVERY
    ]
    bare = scanned(START, KEYS)
    with (
        pytest.warns(tap.JaxtapWarning, match="a tripwire raised RuntimeError: odd"),
        jaxtap_blackjax.watch_sampling(sample_every=EVERY, tripwires=[Odd()]) as seen,
    ):
        assert_identical(scanned(START, KEYS), bare)
    assert len(seen.rows) == STEPS // EVERY
