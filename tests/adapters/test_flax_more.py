"""Further ways in which steps are run, and what is made of what a monitor has seen."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from adapters.networks import CNN, MLP, State, batches, cross_entropy, linen
from flax import nnx

import jaxtap as tap
import jaxtap_flax
from jaxtap.testing import assert_identical

pytestmark = pytest.mark.usefixtures("promotion")


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (None, []),
        ("module", ["Dense_0", "Dense_1", "Dense_2"]),
        ("layer", ["Dense_0", "Dense_1", "Dense_2"]),
        ("leaf", [f"Dense_{i}/{leaf}" for i in range(3) for leaf in ("bias", "kernel")]),
    ],
)
def test_by(by: Any, names: list[str]) -> None:
    training = linen(MLP())
    with jaxtap_flax.train_step_monitor(by=by) as monitor:
        training.run(2)
    columns = [name.removeprefix("grad_norm/") for name in monitor.rows[0].values if name.startswith("grad_norm/")]
    assert columns == names
    first = monitor.rows[0]
    if names:
        assert sum(first[f"grad_norm/{n}"] ** 2 for n in names) == pytest.approx(first["grad_norm"] ** 2, rel=1e-5)


def test_donated_state_and_the_wrapping_form() -> None:
    training = linen(MLP())
    bare, _ = training.run()
    monitor = jaxtap_flax.train_step_monitor()
    run = monitor(functools.partial(training.run, step=jax.jit(training.step, donate_argnums=0)))
    watched, _ = run()
    assert_identical(watched, bare)
    assert [row.step for row in monitor.rows] == list(range(5))


def test_model_and_optimizer_and_cached_partial() -> None:
    def make() -> Any:
        with pytest.warns(DeprecationWarning):
            return nnx.ModelAndOptimizer(CNN(nnx.Rngs(0)), optax.sgd(0.1))

    def step(optimizer: Any, batch: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: cross_entropy(m(batch[0]), batch[1]))(optimizer.model)
        optimizer.update(grads)
        return loss

    def run(optimizer: Any) -> Any:
        cached = nnx.cached_partial(nnx.jit(step), optimizer)
        return [cached(batch) for batch in batches(3)]

    try:
        optimizer = make()
    except pytest.fail.Exception:
        optimizer = nnx.ModelAndOptimizer(CNN(nnx.Rngs(0)), optax.sgd(0.1))
    graph, state = nnx.split(optimizer)
    state = jax.tree.map(jnp.array, state)
    bare = run(nnx.merge(graph, jax.tree.map(jnp.array, state)))
    with jaxtap_flax.train_step_monitor() as monitor:
        watched = run(nnx.merge(graph, jax.tree.map(jnp.array, state)))
    assert_identical(watched, bare)
    assert [(row.step, row["loss"]) for row in monitor.rows] == [(i, float(loss)) for i, loss in enumerate(bare)]


def test_fp8_scales_are_no_gradient() -> None:
    params = {"params": {"w": jnp.ones(3)}, "_overwrite_with_gradient": {"scale": jnp.ones(())}}
    state = State.create(apply_fn=None, params=params, tx=optax.sgd(0.1))
    grads = {"params": {"w": jnp.full(3, 2.0)}, "_overwrite_with_gradient": {"scale": jnp.float32(100.0)}}
    with jaxtap_flax.train_step_monitor() as monitor:
        new = jax.jit(lambda s: s.apply_gradients(grads=grads))(state)
    assert float(new.params["_overwrite_with_gradient"]["scale"]) == 100.0
    assert monitor.rows[0]["grad_norm"] == pytest.approx(float(np.sqrt(12.0)))


SPREAD = """
import jax, jax.numpy as jnp, numpy as np, optax
from adapters.networks import MLP, batches, cross_entropy, linen
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jaxtap_flax

training = linen(MLP(), optax.sgd(0.1))
mesh = Mesh(np.array(jax.devices()), ("data",))

def parallel(state, batch):
    def loss_fn(params):
        return cross_entropy(state.apply_fn({"params": params}, batch[0]), batch[1])
    loss, grads = jax.lax.pmean(jax.value_and_grad(loss_fn)(state.params), "data")
    return state.apply_gradients(grads=grads), loss

specs = {"in_specs": (P(), P("data")), "out_specs": (P(), P())}
steps = {
    "jit": jax.jit(training.step),
    "shard_map": jax.jit(jax.shard_map(parallel, mesh=mesh, check_vma=False, **specs)),
}
mapped = jax.pmap(parallel, axis_name="data")

def with_pmap(state, batch):
    spread = jax.tree.map(lambda x: x.reshape(4, -1, *x.shape[1:]), batch)
    return jax.tree.map(lambda x: np.asarray(x[0]), mapped(jax.tree.map(lambda x: np.stack([x] * 4), state), spread))

steps["pmap"] = with_pmap

def run(step):
    state = jax.device_put(jax.tree.map(jnp.asarray, training.start()), NamedSharding(mesh, P()))
    for batch in batches(3):
        state, loss = step(state, jax.device_put(batch, NamedSharding(mesh, P("data"))))
    return state.params, loss

for name, step in steps.items():
    bare = run(step)
    with jaxtap_flax.train_step_monitor() as monitor:
        watched = run(step)
    jax.tree.map(np.testing.assert_array_equal, watched, bare)
    print(name, *(row.step for row in monitor.rows), abs(float(bare[1]) - monitor.rows[-1]["loss"]) < 1e-5)
"""


def test_data_parallel() -> None:
    """On four devices, a step is one row, whether XLA spreads it or the program does."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    environment = os.environ | flags | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", SPREAD], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.splitlines() == [f"{name} 0 1 2 True" for name in ("jit", "shard_map", "pmap")], run.stderr


def test_selectors_on_a_users_own_loop() -> None:
    training = linen(MLP())
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches(3))
    start = jax.tree.map(jnp.asarray, training.start())
    run = jax.jit(lambda state: jax.lax.scan(training.step, state, stacked))
    norms = []
    for batch in batches(3):
        norms.append(float(optax.tree.norm(start.params)))
        start, _ = training.step(start, batch)
    with tap.record(select=jaxtap_flax.param_norm) as rec:
        run(jax.tree.map(jnp.asarray, training.start()))
    assert [float(e.value) for e in rec.events][:2] == pytest.approx(norms[1:], rel=1e-4)
    assert int(jaxtap_flax.step(start)) == 3
    outputs = {"loss": jnp.float32(2.0), "grads": {"a": jnp.array([3.0, jnp.nan])}, "params": jnp.full(4, 2.0)}
    assert float(jaxtap_flax.loss(outputs)) == 2.0 and int(jaxtap_flax.nonfinite(outputs)) == 1
    outputs |= {
        "updates": jnp.full(4, 1.0),
        "batch_stats": {"bn": {"mean": jnp.zeros(2), "var": jnp.array([2.0, 3.0])}},
    }
    assert float(jaxtap_flax.update_ratio(outputs)) == 0.5 and float(jaxtap_flax.batch_stats_var(outputs)) == 2.0
    with tap.record(select=jaxtap_flax.update_ratio) as rec:
        jax.lax.scan(lambda s, _: (jax.tree.map(lambda x: x * 2.0, s), None), outputs, None, length=2)
    assert [float(e.value) for e in rec.events] == [0.5, 0.5]


def test_a_figure(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    training = linen(MLP(norm=True), has_stats=True)
    with jaxtap_flax.train_step_monitor() as monitor:
        training.run(12)
    drawn = monitor.plot()
    drawn.savefig(tmp_path / "run.png")
    loss, norms, heat = drawn.axes[:3]
    assert loss.lines[0].get_ydata().tolist() == [row["loss"] for row in monitor.rows]
    assert [label.get_text() for label in norms.get_legend().get_texts()][:1] == ["grad_norm"]
    assert heat.images[0].get_array().shape == (4, 12)
    assert [label.get_text() for label in heat.get_yticklabels()] == ["Dense_0", "BatchNorm_0", "Dense_1", "Dense_2"]


def test_tensorboard_reads_what_was_written(tmp_path: Any) -> None:
    pytest.importorskip("tensorboardX")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    training = linen(MLP())
    with jaxtap_flax.to_tensorboard(tmp_path) as sink, jaxtap_flax.train_step_monitor(on_row=sink) as monitor:
        training.run(4)
    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    for column in ("loss", "grad_norm", "grad_norm/Dense_1"):
        found = [(event.step, event.value) for event in read.Scalars(column)]
        assert found == [(row.step, pytest.approx(row[column])) for row in monitor.rows]


def test_weights_and_biases() -> None:
    """Its `Run.log` takes a dictionary and a step."""
    logged: list[tuple[int | None, dict[str, Any]]] = []

    class Run:
        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            logged.append((step, data))

    with jaxtap_flax.train_step_monitor(on_row=jaxtap_flax.to_wandb(Run())) as monitor:
        linen(MLP()).run(3)
    assert logged == [(row.step, row.values) for row in monitor.rows]
