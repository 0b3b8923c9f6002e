"""Networks in training on the digits, as users write them, and the same steps with norms taken by hand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training import train_state

BATCH = 32
DIGITS = np.load(Path(__file__).parent.parent / "data" / "digits.npz")
IMAGES = DIGITS["images"].astype(np.float32)[..., None] / 16.0
LABELS = DIGITS["labels"].astype(np.int32)


def batches(count: int) -> list[tuple[Any, Any]]:
    """The first mini-batches of the digits, images of 8 by 8 by 1 and labels."""
    cut = [slice(i * BATCH, (i + 1) * BATCH) for i in range(count)]
    return [(jnp.asarray(IMAGES[s]), jnp.asarray(LABELS[s])) for s in cut]


def cross_entropy(logits: Any, labels: Any) -> Any:
    """What is made small."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class MLP(nn.Module):
    """With BatchNorm, or without."""

    norm: bool = False
    width: int = 16

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(self.width)(x.reshape(x.shape[0], -1))
        if self.norm:
            x = nn.BatchNorm(use_running_average=False)(x)
        x = nn.relu(x)
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(10)(x)


class Block(nn.Module):
    """A layer of a transformer."""

    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, deterministic=True)(y, y)
        y = nn.LayerNorm()(x)
        return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(y))), None


class Transformer(nn.Module):
    """Two layers under `nn.scan`; the rows of an image are the tokens."""

    remat: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(8)(x[..., 0])
        block = nn.remat(Block) if self.remat else Block
        layers = nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        x, _ = layers()(x, None)
        return nn.Dense(10)(x.mean(axis=1))


class Recurrent(nn.Module):
    """An LSTM over the rows of an image."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.RNN(nn.OptimizedLSTMCell(8))(x[..., 0])
        return nn.Dense(10)(x[:, -1])


class State(train_state.TrainState):
    """One that keeps what BatchNorm keeps, and adds to what its step does."""

    batch_stats: Any = None

    def apply_gradients(self, *, grads: Any, **kwargs: Any) -> Any:
        """A step, by way of super."""
        return super().apply_gradients(grads=grads, **kwargs)


class CNN(nnx.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, rngs: nnx.Rngs, width: int = 4) -> None:
        self.conv1 = nnx.Conv(1, width, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.conv2 = nnx.Conv(width, width, (3, 3), rngs=rngs)
        self.out = nnx.Linear(width * 4, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.norm(self.conv1(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
        return self.out(x.reshape(x.shape[0], -1))


@dataclasses.dataclass(frozen=True)
class Training:
    """A model in training.

    Attributes:
      start: makes the first state.
      step: a step, from a state and a batch to a state and the loss.
      by_hand: the same step, also giving what a row is to hold.
      compiled: what jits a step.
    """

    start: Callable[[], Any]
    step: Callable[..., Any]
    by_hand: Callable[..., Any]
    compiled: Callable[..., Any] = jax.jit

    def run(self, count: int = 5, by_hand: bool = False, step: Any = None) -> Any:
        """A Python loop over the jitted step: the last state, and what each step returned."""
        step = step or self.compiled(self.by_hand if by_hand else self.step)
        state, told = self.start(), []
        for batch in batches(count):
            state, out = step(state, batch)
            told.append(out)
        return state, told


def norms(loss: Any, grads: Any, params: Any, updates: Any) -> dict[str, Any]:
    """What a row is to hold, by Optax's own functions: of all parameters and of each layer."""
    found = {"loss": loss}
    found |= _norms("", grads, params, updates)
    for layer in _layers(grads):
        found |= _norms(f"/{'/'.join(layer)}", *(_at(tree, layer) for tree in (grads, params, updates)))
    return found


def _norms(end: str, grads: Any, params: Any, updates: Any) -> dict[str, Any]:
    found = {"grad_norm": grads, "param_norm": params, "update_norm": updates}
    found = {f"{name}{end}": optax.tree.norm(tree) for name, tree in found.items()}
    found[f"update_ratio{end}"] = found[f"update_norm{end}"] / found[f"param_norm{end}"]
    found[f"nonfinite{end}"] = sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(grads))
    return found


def _layers(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not hasattr(tree, "items"):
        return []
    below = [layer for name, child in tree.items() for layer in _layers(child, (*path, str(name)))]
    return [path, *below] if any(not hasattr(child, "items") for child in tree.values()) else below


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return {name: leaf for name, leaf in tree.items() if not hasattr(leaf, "items")}


def linen(model: nn.Module, tx: Any = None, has_stats: bool = False) -> Training:
    """A linen model in a `TrainState`."""
    tx = tx or optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

    def start() -> Any:
        variables = model.init(jax.random.key(0), batches(1)[0][0])
        stats = variables.get("batch_stats")
        return State.create(apply_fn=model.apply, params=variables["params"], tx=tx, batch_stats=stats)

    def differentiated(state: Any, batch: Any) -> Any:
        images, labels = batch

        def loss_fn(params: Any) -> Any:
            if not has_stats:
                return cross_entropy(model.apply({"params": params}, images), labels), None
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, new = model.apply(variables, images, mutable=["batch_stats"])
            return cross_entropy(logits, labels), new["batch_stats"]

        return jax.value_and_grad(loss_fn, has_aux=True)(state.params)

    def step(state: Any, batch: Any) -> Any:
        (loss, stats), grads = differentiated(state, batch)
        return state.apply_gradients(grads=grads, batch_stats=stats), loss

    def by_hand(state: Any, batch: Any) -> Any:
        (loss, stats), grads = differentiated(state, batch)
        updates, _ = tx.update(grads, state.opt_state, state.params)
        told = norms(loss, grads, state.params, updates)
        return state.apply_gradients(grads=grads, batch_stats=stats), told

    return Training(start, step, by_hand)


def nnx_cnn() -> Training:
    """An nnx model with its optimizer, in `nnx.jit`."""

    def start() -> Any:
        model = CNN(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    def differentiated(model: Any, batch: Any) -> Any:
        images, labels = batch
        return nnx.value_and_grad(lambda model: cross_entropy(model(images), labels))(model)

    def step(state: Any, batch: Any) -> Any:
        model, optimizer = state
        loss, grads = differentiated(model, batch)
        optimizer.update(model, grads)
        return loss

    def by_hand(state: Any, batch: Any) -> Any:
        model, optimizer = state
        loss, grads = differentiated(model, batch)
        params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        updates = nnx.to_pure_dict(nnx.state(optimizer.update(model, grads)))
        return norms(loss, nnx.to_pure_dict(grads), params, updates)

    def compiled(step: Any) -> Any:
        jitted = nnx.jit(step)

        def run(state: Any, batch: Any) -> Any:
            return state, jitted(state, batch)

        return run

    return Training(start, step, by_hand, compiled)


def by_hand_written() -> Training:
    """A step without Flax's states: `optax.apply_updates` on a linen model's parameters."""
    model, tx = MLP(), optax.sgd(0.1, momentum=0.9)

    def start() -> Any:
        params = model.init(jax.random.key(0), batches(1)[0][0])["params"]
        return params, tx.init(params)

    def differentiated(params: Any, batch: Any) -> Any:
        return jax.value_and_grad(lambda p: cross_entropy(model.apply({"params": p}, batch[0]), batch[1]))(params)

    def step(state: Any, batch: Any) -> Any:
        params, opt_state = state
        loss, grads = differentiated(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    def by_hand(state: Any, batch: Any) -> Any:
        params, opt_state = state
        loss, grads = differentiated(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), norms(loss, grads, params, updates)

    return Training(start, step, by_hand)


class Shared(nn.Module):
    """One layer called twice, and one without parameters."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        dense = nn.Dense(64)
        x = dense(nn.relu(dense(x.reshape(x.shape[0], -1))))
        return nn.Dense(10)(nn.Dropout(0.1, deterministic=True)(x))


def accumulated() -> Training:
    """The gradient of a batch as the mean of those of its quarters, in a loop."""
    model, tx = MLP(), optax.sgd(0.1)

    def start() -> Any:
        params = model.init(jax.random.key(0), batches(1)[0][0])["params"]
        return State.create(apply_fn=model.apply, params=params, tx=tx)

    def differentiated(state: Any, batch: Any) -> Any:
        def quarter(total: Any, part: Any) -> Any:
            images, labels = part
            found = jax.value_and_grad(lambda p: cross_entropy(model.apply({"params": p}, images), labels))(
                state.params
            )
            return jax.tree.map(jnp.add, total, found), None

        quarters = jax.tree.map(lambda x: x.reshape(4, -1, *x.shape[1:]), batch)
        zero = jnp.float32(0.0), jax.tree.map(jnp.zeros_like, state.params)
        return jax.tree.map(lambda x: x / 4, jax.lax.scan(quarter, zero, quarters)[0])

    def step(state: Any, batch: Any) -> Any:
        loss, grads = differentiated(state, batch)
        return state.apply_gradients(grads=grads), loss

    def by_hand(state: Any, batch: Any) -> Any:
        loss, grads = differentiated(state, batch)
        updates, _ = tx.update(grads, state.opt_state, state.params)
        told = norms(loss, grads, state.params, updates)
        # Each quarter has a loss of its own, the step has none.
        return state.apply_gradients(grads=grads), {name: told[name] for name in told if name != "loss"}

    return Training(start, step, by_hand)


def lbfgs_regression() -> Training:
    """Which digit, as a number, by least squares on all images and L-BFGS."""
    images, labels = jnp.asarray(IMAGES.reshape(len(IMAGES), -1)), jnp.asarray(LABELS, jnp.float32)
    tx = optax.lbfgs(memory_size=3)

    def value(params: Any) -> Any:
        error = images @ params["line"]["kernel"] + params["line"]["bias"] - labels
        return jnp.mean(error**2)

    def start() -> Any:
        params = {"line": {"kernel": jnp.zeros(64), "bias": jnp.zeros(())}}
        return params, tx.init(params)

    def updated(state: Any) -> Any:
        params, opt_state = state
        loss, grads = optax.value_and_grad_from_state(value)(params, state=opt_state)
        updates, opt_state = tx.update(grads, opt_state, params, value=loss, grad=grads, value_fn=value)
        return loss, grads, updates, opt_state

    def step(state: Any, _: Any) -> Any:
        loss, _, updates, opt_state = updated(state)
        return (optax.apply_updates(state[0], updates), opt_state), loss

    def by_hand(state: Any, _: Any) -> Any:
        loss, grads, updates, opt_state = updated(state)
        told = norms(loss, grads, state[0], updates)
        # The gradient comes out of the optimizer's state, not from where it could be seen.
        told = {name: told[name] for name in told if name.startswith(("param_norm", "update_"))}
        return (optax.apply_updates(state[0], updates), opt_state), told

    return Training(start, step, by_hand)


TRAININGS: dict[str, Callable[[], Training]] = {
    "linen MLP with BatchNorm": lambda: linen(MLP(norm=True), has_stats=True),
    "nnx CNN": nnx_cnn,
    "transformer, nn.scan over layers": lambda: linen(Transformer()),
    "the same, checkpointed": lambda: linen(Transformer(remat=True)),
    "LSTM": lambda: linen(Recurrent()),
    "accumulation by MultiSteps": lambda: linen(MLP(), optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation()),
    "accumulation in a loop": accumulated,
    "a shared module": lambda: linen(Shared()),
    "learning rate injected": lambda: linen(
        MLP(), optax.inject_hyperparams(optax.adam)(optax.cosine_decay_schedule(1e-2, 5))
    ),
    "hand-written step": by_hand_written,
    "L-BFGS on a regression": lbfgs_regression,
}


@functools.cache
def told(name: str) -> list[dict[str, Any]]:
    """What the rows of five steps are to hold."""
    return TRAININGS[name]().run(by_hand=True)[1]


def pure(state: Any) -> Any:
    """The arrays of a state, of Flax's nnx or of any other."""
    if isinstance(state, tuple) and isinstance(state[0], nnx.Module):
        return [nnx.to_pure_dict(nnx.state(each)) for each in state]
    return state
