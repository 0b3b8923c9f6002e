"""What modules return: linen and nnx, under scans and checkpoints, forward and backward."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from adapters.networks import CNN, MLP, Recurrent, Transformer, batches, cross_entropy, linen
from flax import nnx

import jaxtap_flax
from jaxtap.testing import assert_identical

pytestmark = pytest.mark.usefixtures("promotion")


def stats(x: Any) -> dict[str, float]:
    x = np.asarray(x)
    return {
        "activation_rms": float(np.sqrt(np.mean(x**2))),
        "activation_max": float(np.abs(x).max()),
        "dead_fraction": float(np.mean(x == 0)),
        "activation_nonfinite": float(np.sum(~np.isfinite(x))),
    }


def test_linen() -> None:
    model, x = MLP(norm=True), batches(1)[0][0]
    variables = model.init(jax.random.key(0), x)
    apply = jax.jit(
        lambda v, x: model.apply(v, x, mutable=["batch_stats", "intermediates"], capture_intermediates=True)
    )
    logits, captured = apply(variables, x)
    with jaxtap_flax.watch_activations(tripwires=False) as seen:
        watched, _ = apply(variables, x)
    assert_identical(watched, logits)
    kept = captured["intermediates"]
    assert [row["module"] for row in seen.rows] == ["Dense_0", "BatchNorm_0", "Dense_1", "Dense_2", "MLP"]
    for row in seen.rows[:-1]:
        right = stats(kept[row["module"]]["__call__"][0])
        assert {name: row[name] for name in right} == pytest.approx(right, rel=1e-5)
    apply(variables, x)
    assert len(seen.rows) == 5


@pytest.mark.parametrize("patterns", ["Dense_*", ["Dense_0", "Dense_1", "Dense_2"], "Dense"])
def test_patterns(patterns: Any) -> None:
    model, x = MLP(), batches(1)[0][0]
    variables = model.init(jax.random.key(0), x)
    with jaxtap_flax.watch_activations(patterns) as seen:
        model.apply(variables, x)
    assert [row["module"] for row in seen.rows] == ["Dense_0", "Dense_1", "Dense_2"]


def test_nnx_and_where_modules_are() -> None:
    model, x = CNN(nnx.Rngs(0)), batches(1)[0][0]
    graph, state = nnx.split(model)
    apply = nnx.jit(lambda model, x: model(x))
    bare = apply(nnx.merge(graph, state), x)
    own = vars(nnx.Linear)["__call__"]
    with jaxtap_flax.watch_activations() as seen:
        watched = apply(nnx.merge(graph, state), x)
    assert vars(nnx.Linear)["__call__"] is own
    assert_identical(watched, bare)
    assert [row["module"] for row in seen.rows] == ["conv1", "norm", "conv2", "out", "CNN"]
    right = stats(bare)
    assert {name: seen.rows[-1][name] for name in right} == pytest.approx(right, rel=1e-5)


def test_the_step_is_the_layer_under_a_scan_over_layers() -> None:
    model, x = Transformer(), batches(1)[0][0]
    variables = model.init(jax.random.key(0), x)
    apply = jax.jit(model.apply)
    bare = apply(variables, x)
    with jaxtap_flax.watch_activations("*/Dense_1") as seen:
        assert_identical(apply(variables, x), bare)
    assert [(row.path, row.step, row.total) for row in seen.rows] == [("scan[0]", 0, 2), ("scan[0]", 1, 2)]


def test_nnx_scan_over_layers() -> None:
    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def make(rngs: nnx.Rngs) -> Any:
        return nnx.Linear(4, 4, rngs=rngs)

    layers = make(nnx.Rngs(0))

    @nnx.jit
    def forward(layers: Any, x: Any) -> Any:
        return nnx.scan(lambda x, layer: nnx.relu(layer(x)), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, layers)

    x = jnp.ones((2, 4))
    bare = forward(layers, x)
    with jaxtap_flax.watch_activations("Linear") as seen:
        assert_identical(forward(layers, x), bare)
    assert [(row.path, row.step, row["module"]) for row in seen.rows] == [("scan[0]", i, "Linear") for i in range(3)]


def test_a_recurrent_network_step_by_step() -> None:
    model, x = Recurrent(), batches(1)[0][0]
    variables = model.init(jax.random.key(0), x)
    bare = model.apply(variables, x)
    with jaxtap_flax.watch_activations("OptimizedLSTMCell") as seen:
        assert_identical(model.apply(variables, x), bare)
    assert [row.step for row in seen.rows] == list(range(8))


def test_backward() -> None:
    model, (x, y) = MLP(), batches(1)[0]
    variables = model.init(jax.random.key(0), x)

    @jax.jit
    def grads(variables: Any, probe: Any) -> Any:
        def loss(variables: Any, probe: Any) -> Any:
            return cross_entropy(model.apply(variables, x) + probe, y)

        return jax.grad(loss, argnums=(0, 1))(variables, probe)

    bare = grads(variables, jnp.zeros((32, 10)))
    with jaxtap_flax.watch_activations("Dense_*", backward=True) as seen:
        assert_identical(grads(variables, jnp.zeros((32, 10))), bare)
    back = {row["module"]: row["cotangent_rms"] for row in seen.rows if "cotangent_rms" in row.values}
    assert set(back) == {"Dense_0", "Dense_1", "Dense_2"}
    assert back["Dense_2"] == pytest.approx(float(jnp.sqrt(jnp.mean(bare[1] ** 2))), rel=1e-5)


def test_shared_modules_and_modules_without_parameters() -> None:
    class Shared(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            dense = nn.Dense(4)
            x = dense(x)
            x = nn.Dropout(0.5, deterministic=True)(x)
            return dense(x)

    model = Shared()
    variables = model.init(jax.random.key(0), jnp.ones((2, 4)))
    with jaxtap_flax.watch_activations() as seen:
        model.apply(variables, jnp.ones((2, 4)))
    assert [(row["module"], row.path) for row in seen.rows] == [
        ("Dense_0", "Dense_0[0]"),
        ("Dropout_0", "Dropout_0[0]"),
        ("Dense_0", "Dense_0[1]"),
        ("Shared", "Shared[0]"),
    ]


def test_in_a_monitor_each_row_has_its_activations() -> None:
    training = linen(MLP(), optax.sgd(0.1))
    step = jax.jit(training.step)
    bare, _ = training.run(4, step=step)
    apply = jax.jit(training.start().apply_fn)
    with jaxtap_flax.train_step_monitor(activations="Dense_*") as monitor:
        watched, _ = training.run(4, step=step)
        apply({"params": watched.params}, batches(1)[0][0])
    assert_identical(watched, bare)
    assert len(monitor.activations) == 12 and len(monitor.rows) == 4
    table = monitor.df()
    assert not table[[f"activation_rms/Dense_{i}" for i in range(3)]].isna().any(axis=None)
    assert list(table["step"]) == [0, 1, 2, 3]


def test_nothing_to_see() -> None:
    nothing = r"watch_activations has seen nothing.*path or class fits 'Conv_\*'"
    with pytest.warns(UserWarning, match=nothing), jaxtap_flax.watch_activations("Conv_*"):
        jnp.ones(3) + 1.0
    with pytest.raises(ValueError, match="patterns must be a glob"):
        jaxtap_flax.watch_activations([])
    with pytest.raises(ValueError, match="every must be 1 with activations"):
        jaxtap_flax.train_step_monitor(activations=True, every=2)
    with pytest.raises(ValueError, match="by must be one of 'layer', 'module', 'leaf', None; got 'block'"):
        jaxtap_flax.train_step_monitor(by="block")
