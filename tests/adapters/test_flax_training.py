"""jaxtap-flax on real runs: each step a row, values as a hand-instrumented step has them, and the same bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from adapters.networks import CNN, TRAININGS, Training, batches, cross_entropy, pure, told
from flax import nnx
from flax.training import train_state

import jaxtap_flax
from jaxtap.testing import assert_identical

pytestmark = pytest.mark.usefixtures("promotion")


def hooked() -> list[Any]:
    """What a monitor replaces."""
    places = [(train_state.TrainState, "apply_gradients"), (nnx.Optimizer, "update"), (nnx.Linear, "__call__")]
    return [*(vars(owner)[name] for owner, name in places), optax.apply_updates, jax.value_and_grad]


def assert_rows(rows: list[Any], expected: list[Any], rel: float = 2e-3) -> None:
    for row, right in zip(rows, expected, strict=True):
        own = {name: row[name] for name in right}
        assert own == pytest.approx({name: float(value) for name, value in right.items()}, rel=rel, abs=1e-7)


@pytest.mark.parametrize("name", TRAININGS)
def test_a_python_loop(name: str) -> None:
    """Compiled before the monitor; bits, exact rows, values, nothing left."""
    training: Training = TRAININGS[name]()
    step, own = training.compiled(training.step), hooked()
    bare, losses = training.run(step=step)
    with jaxtap_flax.train_step_monitor(tripwires=False) as monitor:
        watched, watched_losses = training.run(step=step)
    assert hooked() == own
    assert_identical(pure(watched), pure(bare))
    assert_identical(watched_losses, losses)
    assert [(row.path, row.step) for row in monitor.rows] == [("train_step[0]", i) for i in range(5)]
    assert_rows(monitor.rows, told(name))
    again, _ = training.run(step=step)
    assert_identical(pure(again), pure(bare))
    assert len(monitor.rows) == 5


@pytest.mark.parametrize("name", ["linen MLP with BatchNorm", "transformer, nn.scan over layers", "hand-written step"])
def test_a_scan_over_batches(name: str) -> None:
    training = TRAININGS[name]()
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches(5))

    @jax.jit
    def run(state: Any) -> Any:
        return jax.lax.scan(training.step, state, stacked)

    start = jax.tree.map(jnp.asarray, training.start())
    bare = run(start)
    with jaxtap_flax.train_step_monitor(tripwires=False) as monitor:
        watched = run(start)
    assert_identical(watched, bare)
    assert [(row.path, row.step, row.total) for row in monitor.rows] == [("scan[0]", i, 5) for i in range(5)]
    assert_rows(monitor.rows, told(name))


def test_nnx_scan_over_batches() -> None:
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches(5))

    def step(state: Any, batch: Any) -> Any:
        model, optimizer = state
        loss, grads = nnx.value_and_grad(lambda model: cross_entropy(model(batch[0]), batch[1]))(model)
        optimizer.update(model, grads)
        return state, loss

    @nnx.jit
    def train(model: Any, optimizer: Any) -> Any:
        both = nnx.scan(step, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
        return both((model, optimizer), stacked)[1]

    def run() -> Any:
        model = CNN(nnx.Rngs(0))
        losses = train(model, nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param))
        return nnx.to_pure_dict(nnx.state(model)), losses

    bare = run()
    with jaxtap_flax.train_step_monitor(tripwires=False) as monitor:
        watched = run()
    assert_identical(watched, bare)
    assert [(row.path, row.step, row.total) for row in monitor.rows] == [("scan[0]", i, 5) for i in range(5)]
    assert_rows(monitor.rows, told("nnx CNN"))
