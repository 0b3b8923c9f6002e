"""What holds of jaxtap in place of those BlackJAX tests that `blackjax_suite.py` leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import blackjax.util
import jax
import jax.numpy as jnp
import pytest

import jaxtap as tap

STEPS = 30


@pytest.fixture
def sample() -> Callable[[Any], Any]:
    """A sampler under `jit`, compiled by no one yet."""
    sampler = blackjax.nuts(lambda x: -0.5 * jnp.sum(x**2), step_size=0.1, inverse_mass_matrix=jnp.ones(2))

    def run(key: Any) -> Any:
        return blackjax.util.run_inference_algorithm(
            key, inference_algorithm=sampler, num_steps=STEPS, initial_position=jnp.zeros(2)
        )

    return jax.jit(run)


def steps_shown(run: Callable[[], Any]) -> list[int]:
    """The steps that a progress bar around `run` is told of."""
    shown: list[int] = []
    with blackjax.progress_bar() as state:
        tell = state._step_callback
        state._step_callback = lambda step: (shown.append(step), tell(step))
        jax.block_until_ready(run())
    return shown


def test_a_function_compiled_before_is_seen(sample: Callable[[Any], Any]) -> None:
    key = jax.random.key(0)
    jax.block_until_ready(sample(key))
    for _ in range(2):
        assert steps_shown(lambda: sample(key)) == list(range(STEPS))


def test_each_lens_has_its_own_select(sample: Callable[[Any], Any]) -> None:
    key = jax.random.key(0)
    assert len(steps_shown(lambda: sample(key))) == STEPS
    with tap.record(select="position", max_depth=0) as recorder:
        state, _ = sample(key)
    assert len(recorder.events) == STEPS
    assert recorder.events[-1].value.tobytes() == state.position.tobytes()
    assert len(steps_shown(lambda: sample(key))) == STEPS


def test_no_function_of_jax_is_replaced(sample: Callable[[Any], Any]) -> None:
    scan, key = jax.lax.scan, jax.random.key(0)
    first, second = blackjax.progress_bar(label="first"), blackjax.progress_bar(label="second")
    states = first.__enter__(), second.__enter__()
    assert jax.lax.scan is scan
    jax.block_until_ready(sample(key))
    first.__exit__(None, None, None)
    assert jax.lax.scan is scan
    jax.block_until_ready(sample(key))
    second.__exit__(None, None, None)
    assert [state.n_steps for state in states] == [STEPS, STEPS]
