"""Limits of the adapters that docs/boundaries.md states and that no other test shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import optax
import pytest
from flax.training.train_state import TrainState

import jaxtap_blackjax
import jaxtap_flax


@pytest.fixture(autouse=True)
def defaults_of_the_libraries() -> Iterator[None]:
    """They are not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def loss_of(params: Any) -> Any:
    return jnp.sum(params["dense"]["w"] ** 2)


made_before = jax.value_and_grad(loss_of)


@pytest.mark.parametrize(
    ("loss_and_grads", "seen"),
    [
        pytest.param(lambda params: jax.value_and_grad(loss_of)(params), True, id="called in the step"),
        pytest.param(made_before, False, id="made before"),
        pytest.param(lambda params: (0, jax.value_and_grad(loss_of)(params)[1]), False, id="let go at once"),
    ],
)
def test_a_loss_is_seen_where_the_step_has_it(loss_and_grads: Any, seen: bool) -> None:
    """It is held weakly until the update: a tracer must not outlive its trace."""

    @jax.jit
    def train_step(state: TrainState) -> TrainState:
        loss, grads = loss_and_grads(state.params)
        state = state.apply_gradients(grads=grads)
        del loss
        return state

    state = TrainState.create(apply_fn=None, params={"dense": {"w": jnp.ones(2)}}, tx=optax.sgd(0.01))
    with jaxtap_flax.train_step_monitor() as monitor:
        train_step(state)
    (row,) = monitor.rows
    assert ("loss" in row.values) is seen and "grad_norm" in row.values


def test_activations_are_sent_at_each_step() -> None:
    with pytest.raises(ValueError, match="every must be 1 with activations"):
        jaxtap_flax.train_step_monitor(activations=True, every=2)


def density(x: Any) -> Any:
    return -0.5 * jnp.sum(x**2)


def test_without_hooks_the_limit_of_the_tree_is_not_known() -> None:
    adaptation = blackjax.window_adaptation(blackjax.nuts, density)
    rows: dict[bool, Any] = {}
    for hooks in (True, False):
        with jaxtap_blackjax.watch_warmup(hooks=hooks) as warmup:
            adaptation.run(jax.random.key(0), jnp.ones(2), 20)
        rows[hooks] = warmup.rows[-1]
    assert "tree_depth_limit" in rows[True].values and "tree_depth_limit" not in rows[False].values
    assert rows[True]["tree_depth"] == rows[False]["tree_depth"]


def test_the_step_size_of_a_row_is_that_of_the_next_step() -> None:
    adaptation = blackjax.window_adaptation(blackjax.nuts, density)
    with jaxtap_blackjax.watch_warmup(tripwires=False) as warmup:
        _, info = adaptation.run(jax.random.key(0), jnp.ones(2), 20)
    assert [row["step_size"] for row in warmup.rows] == info.adaptation_state.step_size.tolist()
