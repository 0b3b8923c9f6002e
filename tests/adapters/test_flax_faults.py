"""Planted faults: the first bad step and its layer are named exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from adapters.networks import BATCH, MLP, State, batches, cross_entropy

import jaxtap_flax
from jaxtap.internal import Row

pytestmark = pytest.mark.usefixtures("promotion")


class RootAtZero(nn.Module):
    """`where` hides the root's value at zero, and not its gradient. What `Dense_0` returns is zero at step 3."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(16)(x.reshape(x.shape[0], -1))
        scale = self.param("scale", lambda _: jnp.float32(1.0))
        root = nn.Dense(16, name="Middle")(jnp.where(x != 0, jnp.sqrt(jnp.abs(x)), 0.0))
        return nn.Dense(10, name="Last")(root * scale)


class Dead(nn.Module):
    """The units of the second layer never wake up."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(16)(x.reshape(x.shape[0], -1))
        x = Rectified(name="asleep", bias=-1.0, scale=0.0)(nn.relu(x))
        return nn.Dense(10)(Rectified(name="awake", bias=0.1)(x + 1.0))


class Rectified(nn.Module):
    """A layer and its ReLU."""

    bias: float = 0.0
    scale: float = 0.1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        kernel, bias = nn.initializers.normal(self.scale), nn.initializers.constant(self.bias)
        return nn.relu(nn.Dense(16, kernel_init=kernel, bias_init=bias)(x))


def begun(model: nn.Module, tx: Any, change: Callable[[Any], Any]) -> tuple[Any, Callable[..., Any]]:
    """A model's first state, and its step."""
    params = model.init(jax.random.key(0), batches(1)[0][0])["params"]
    state = State.create(apply_fn=model.apply, params=change(params), tx=tx)

    def step(state: Any, batch: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            return cross_entropy(model.apply({"params": params}, batch[0]), batch[1])

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    return state, step


def train(
    model: nn.Module,
    tx: Any,
    data: list[Any],
    change: Callable[[Any], Any] = lambda params: params,
    each: Callable[[], object] = lambda: None,
) -> Any:
    """A few steps of training."""
    state, step = begun(model, tx, change)
    step = jax.jit(step)
    for batch in data:
        state, loss = step(state, batch)
        jax.block_until_ready(loss)
        each()
    return state


def train_in_scan(model: nn.Module, tx: Any, data: list[Any]) -> Any:
    """The same in a loop."""
    state, step = begun(model, tx, lambda params: params)
    start = jax.tree.map(jnp.asarray, state)
    return jax.jit(lambda state, data: jax.lax.scan(step, state, data))(
        start, jax.tree.map(lambda *x: jnp.stack(x), *data)
    )


def large(params: Any) -> Any:
    return params | {"Dense_1": jax.tree.map(lambda p: p * 100.0, params["Dense_1"])}


def with_inf(count: int, at: int) -> list[Any]:
    """Batches, of which one holds a single Inf."""
    data = batches(count)
    data[at] = (data[at][0].at[3, 2, 2, 0].set(jnp.inf), data[at][1])
    return data


def with_black(count: int, at: int) -> list[Any]:
    """Batches, of which one holds a black image: without biases its first layer gives zero."""
    data = batches(count)
    data[at] = (data[at][0].at[0].set(0.0), data[at][1])
    return data


def no_bias(params: Any) -> Any:
    return params | {"Dense_0": {**params["Dense_0"], "bias": jnp.zeros(16)}}


FAULTS = {
    "a layer initialised at 100 times": (
        lambda: train(MLP(), optax.sgd(1e-3), batches(4), large),
        (0, "layer_apart", "Dense_1"),
    ),
    "a root at zero inside a where": (
        lambda: train(RootAtZero(), optax.set_to_zero(), with_black(6, 3), no_bias),
        (3, "nonfinite_gradient", "Dense_0"),
    ),
    "a learning rate of 10": (lambda: train(MLP(), optax.sgd(10.0), batches(4)), (0, "update_too_large", "")),
    "a batch with one Inf": (
        lambda: train(MLP(), optax.sgd(0.1), with_inf(6, 4)),
        (4, "nonfinite_activation", "Dense_0"),
    ),
    "a dead layer": (
        lambda: train(Dead(), optax.sgd(1e-2), [batches(1)[0]] * 24),
        (19, "dead_units", "asleep"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_first_bad_step_and_layer(name: str, capfd: Any) -> None:
    run, (step, tripwire, layer) = FAULTS[name]
    with jaxtap_flax.train_step_monitor(activations=True) as monitor:
        run()
    told = monitor.summary()
    assert (told.first_bad_step, told.tripwire, told.layer) == (step, tripwire, layer), [
        (trip.row.step, trip.tripwire, trip.message) for trip in monitor.trips
    ]
    assert told.message in capfd.readouterr().err and told.message in str(told)
    assert [row.step for row in told.before] == list(range(max(0, step - 19), step + 1))


def test_what_led_up_to_a_trip_is_kept_whatever_the_capacity_and_where_the_run_is_killed() -> None:
    class Enough(Exception):
        pass

    def until(monitor: Any, after: int) -> None:
        monitor.wait()
        if monitor.trips and monitor.rows[-1].step >= 23 + after:
            raise Enough

    data = [batches(1)[0]] * 30
    data[23] = with_inf(1, 0)[0]
    for after in (0, 4):
        monitor = jaxtap_flax.train_step_monitor(capacity=3)
        with pytest.raises(Enough), monitor:
            train(MLP(), optax.sgd(0.1), data, each=lambda monitor=monitor, after=after: until(monitor, after))
        told = monitor.summary()
        assert (told.first_bad_step, told.tripwire, told.layer) == (23, "nonfinite_gradient", "Dense_0")
        assert [row.step for row in told.before] == list(range(4, 24))
        assert monitor.dropped > 20 and len(monitor.rows) == 3


class Layers(nn.Module):
    """Two layers under `nn.scan`, out of bounds once their input is."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        layers = nn.scan(Bounded, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        return nn.Dense(10)(layers()(x, None)[0])


class Bounded(nn.Module):
    """A layer after which what is above a limit is infinite."""

    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        x = nn.Dense(8, kernel_init=nn.initializers.constant(1.0))(x)
        return jnp.where(jnp.abs(x) > 1e5, jnp.inf, x), None


class Asleep(nn.Module):
    """A layer whose units are dead where its number is 1."""

    @nn.compact
    def __call__(self, x: Any, number: Any) -> Any:
        return nn.relu(nn.Dense(8)(x) - 1e6 * number), None


class Numbered(nn.Module):
    """Two such layers."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        layers = nn.scan(Asleep, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        return nn.Dense(10)(layers()(x, jnp.arange(2.0))[0])


def test_units_that_die_in_one_layer_of_a_scan() -> None:
    with jaxtap_flax.train_step_monitor(activations="Scan*") as monitor:
        train(Numbered(), optax.sgd(1e-3), [batches(1)[0]] * 22)
    (trip,) = [trip for trip in monitor.trips if trip.tripwire == "dead_units"]
    # Which step the first call is of is told after it.
    assert trip.row.step == 1 and trip.row.call in (19, 20) and trip.row["dead_fraction"] == 1.0


def with_large(count: int, at: int) -> list[Any]:
    """Batches, of which one is a million times as large."""
    data = batches(count)
    data[at] = (data[at][0] * 1e6, data[at][1])
    return data


@pytest.mark.parametrize("scanned", [False, True])
def test_a_layer_under_a_scan_is_of_the_step_that_it_is_in(scanned: bool) -> None:
    """The step is that of training, though a layer's own loop counts layers."""
    run = train_in_scan if scanned else train
    with jaxtap_flax.train_step_monitor(activations=True) as monitor:
        run(Layers(), optax.set_to_zero(), with_large(5, 3))
    trips = [trip for trip in monitor.trips if trip.tripwire == "nonfinite_activation"]
    told = monitor.summary()
    assert (told.first_bad_step, told.tripwire) == (3, "nonfinite_activation"), str(told)
    assert told.layer.startswith("ScanBounded_0") and len(trips) > 1
    table = monitor.df()
    columns = [name for name in table if name.startswith("activation_nonfinite/ScanBounded_0[")]
    assert columns == [f"activation_nonfinite/ScanBounded_0[{i}]" for i in range(2)]
    assert list(table[columns[1]] > 0) == [i == 3 for i in range(5)]


def test_whether_the_forward_pass_was_finite() -> None:
    with jaxtap_flax.train_step_monitor() as monitor:
        train(RootAtZero(), optax.set_to_zero(), with_black(6, 3), no_bias)
    (trip,) = [t for t in monitor.trips if t.tripwire == "nonfinite_gradient"]
    assert trip.message.startswith("gradient is not finite in Dense_0 (") and "forward pass was finite" in trip.message
    with jaxtap_flax.train_step_monitor() as monitor:
        train(MLP(), optax.sgd(0.1), with_inf(6, 4))
    trip = next(t for t in monitor.trips if t.tripwire == "nonfinite_gradient")
    assert trip.row.step == 4 and "the forward pass was not: loss nan" in trip.message
    assert "and 2 more layers" in trip.message


def test_sent_now_and_then_but_a_fault_is_sent_at_once() -> None:
    with jaxtap_flax.train_step_monitor(every=5) as monitor:
        train(MLP(), optax.apply_if_finite(optax.sgd(0.01), 10), with_inf(14, 7))
    assert [row.step for row in monitor.rows] == [0, 5, 7, 10]
    assert monitor.summary().first_bad_step == 7


def test_health_trips_nothing() -> None:
    data = [batches(1 + i % 16)[-1] for i in range(60)]
    with jaxtap_flax.train_step_monitor(activations=True) as monitor:
        train(MLP(), optax.adam(1e-3), data)
    assert monitor.trips == [] and monitor.summary().first_bad_step is None
    assert len(monitor.rows) == 60 and "no tripwire has fired" in str(monitor.summary())
    assert len(data[0][0]) == BATCH


def test_a_collapsed_batch_norm_and_a_loss_that_stands_still() -> None:
    class Flat(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.BatchNorm(use_running_average=False, momentum=0.0)(x.reshape(x.shape[0], -1) * 0.0)
            return nn.Dense(10)(x)

    model = Flat()
    variables = model.init(jax.random.key(0), batches(1)[0][0])
    state = State.create(
        apply_fn=model.apply, params=variables["params"], tx=optax.sgd(0.0), batch_stats=variables["batch_stats"]
    )

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            kept = {"params": params, "batch_stats": state.batch_stats}
            logits, new = model.apply(kept, batch[0], mutable=["batch_stats"])
            return cross_entropy(logits, batch[1]), new["batch_stats"]

        (_, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=stats)

    with jaxtap_flax.train_step_monitor() as monitor:
        for _ in range(60):
            state = step(state, batches(1)[0])
    found = {trip.tripwire: (trip.row.step, trip.layer) for trip in monitor.trips}
    assert found["batch_stats_collapse"] == (0, "BatchNorm_0") and found["loss_constant"] == (49, "")
    assert found["update_too_small"] == (19, "")


def test_the_gradient_of_one_layer_that_the_whole_hides() -> None:
    look = jaxtap_flax.layer_gradient_spike().start()
    norms = [
        {"grad_norm": 10.0, "grad_norm/Dense_0": 10.0, "grad_norm/Dense_1": 0.1 if i < 12 else 2.0} for i in range(14)
    ]
    rows = [Row("scan[0]", step, 14, (), (), 0, 0.0, values) for step, values in enumerate(norms)]
    found = [(trip.row.step, trip.layer, trip.message) for row in rows for trip in look(row)]
    assert found == [(12, "Dense_1", "gradient of Dense_1 is over 10 times its median: norm 2")]
