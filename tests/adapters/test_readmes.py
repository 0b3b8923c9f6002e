"""The example in each adapter's own README runs, given the program that it is held over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import matplotlib
import optax
import pytest
from flax.training.train_state import TrainState

PACKAGES = Path(__file__).parents[2] / "packages"


@pytest.fixture(autouse=True)
def as_a_user_has_it() -> Iterator[None]:
    """Libraries are not written for the strict settings of the other tests, and there is no screen."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), matplotlib.rc_context():
        matplotlib.use("Agg")
        yield


def sampler() -> dict[str, Any]:
    return {
        "blackjax": blackjax,
        "logdensity": lambda x: -0.5 * jnp.sum(x**2),
        "key": jax.random.key(0),
        "x0": jnp.ones(2),
    }


def network() -> dict[str, Any]:
    @jax.jit
    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, Any]:
        loss, grads = jax.value_and_grad(lambda params: jnp.sum((params["dense"]["w"] - batch) ** 2))(state.params)
        return state.apply_gradients(grads=grads), loss

    params = {"dense": {"w": jnp.ones(3)}}
    state = TrainState.create(apply_fn=None, params=params, tx=optax.sgd(0.01))
    return {"batches": [jnp.zeros(3)] * 3, "train_step": train_step, "state": state}


def optimizer() -> dict[str, Any]:
    def train(params: Any) -> Any:
        tx = optax.adam(0.1)
        updates, _ = tx.update(params, tx.init(params), params)
        return optax.apply_updates(params, updates)

    return {"train": train, "params": jnp.ones(3)}


@pytest.mark.parametrize(
    ("package", "given", "context"),
    [
        ("jaxtap-blackjax", sampler, "warmup"),
        ("jaxtap-flax", network, "monitor"),
        ("jaxtap-optax", optimizer, "seen"),
    ],
)
def test_the_example_runs(package: str, given: Any, context: str) -> None:
    text = (PACKAGES / package / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = given()
    exec(compile(code, f"{package}/README.md", "exec"), names)
    assert len(names[context].rows) > 0
