"""Optimizers at work on a small regression, as users write such loops, and the same with norms taken by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

X = jax.random.normal(jax.random.key(0), (32, 8))
Y = jnp.sin(X.sum(axis=1))


def value(params: Any) -> Any:
    """What is made small."""
    return jnp.mean((jnp.tanh(X @ params["w"]) @ params["v"] - Y) ** 2) + 1e-3 * jnp.sum(params["w"] ** 2)


def start() -> dict[str, Any]:
    """The first parameters."""
    keys = jax.random.split(jax.random.key(1))
    return {"w": jax.random.normal(keys[0], (8, 6)), "v": jax.random.normal(keys[1], (6,))}


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd with momentum": lambda: optax.sgd(0.05, momentum=0.9),
    "adam": lambda: optax.adam(1e-2),
    "adamw with a schedule": lambda: optax.adamw(optax.cosine_decay_schedule(1e-2, 10)),
    "clip and adam": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(optax.linear_schedule(1e-2, 1e-3, 5)),
    "multi steps": lambda: optax.MultiSteps(optax.adam(1e-2), 3),
    "multi steps in a chain": lambda: optax.chain(optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation()),
    "apply if finite": lambda: optax.apply_if_finite(optax.sgd(0.1), 2),
    "lbfgs": lambda: optax.lbfgs(),
    "backtracking": lambda: optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(10)),
    "plateau": lambda: optax.chain(optax.sgd(1e-2), optax.contrib.reduce_on_plateau(patience=1)),
    "muon": lambda: optax.contrib.muon(1e-2),
    "prodigy": lambda: optax.contrib.prodigy(),
    "partition": lambda: optax.partition({"a": optax.adam(1e-2), "b": optax.sgd(0.1)}, {"w": "a", "v": "b"}),
    "ema": lambda: optax.chain(optax.ema(0.9), optax.sgd(1e-2)),
}


def norms(grads: Any, updates: Any, params: Any) -> dict[str, Any]:
    """What a row is to hold, by Optax's own functions."""
    update_norm, param_norm = optax.tree.norm(updates), optax.tree.norm(params)
    return {
        "grad_norm": optax.tree.norm(grads),
        "update_norm": update_norm,
        "param_norm": param_norm,
        "update_ratio": update_norm / param_norm,
        "nonfinite": sum(jnp.sum(~jnp.isfinite(g)) for g in jax.tree.leaves(grads)),
    }


def stepper(tx: Any, by_hand: bool = False) -> Any:
    """A step of training, also telling norms if it is instrumented by hand."""

    def step(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(value)(params)
        extra = {} if isinstance(tx, optax.MultiSteps) else {"value": loss, "grad": grads, "value_fn": value}
        taking = optax.with_extra_args_support(tx) if isinstance(tx, optax.GradientTransformation) else tx
        updates, state = taking.update(grads, state, params, **extra)
        told = norms(grads, updates, params) if by_hand else None
        return optax.apply_updates(params, updates), state, told

    return step


def strong(tree: Any) -> Any:
    """A tree without weak types."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), tree)


def in_python(tx: Any, count: int = 7, by_hand: bool = False, step: Any = None) -> Any:
    """A Python loop over a jitted step."""
    step = step or jax.jit(stepper(tx, by_hand))
    params, told = start(), []
    # Line searches begin with weak types and go on with strong ones, which would be compiled twice.
    state = strong(tx.init(params))
    for _ in range(count):
        params, state, row = step(params, state)
        told.append(row)
    return (params, state), told


@functools.cache
def told(name: str) -> list[dict[str, Any]]:
    """What the rows of seven steps are to hold."""
    return in_python(OPTIMIZERS[name](), by_hand=True)[1]


def in_scan(tx: Any, count: int = 7) -> Any:
    """A scan over the step."""
    step = stepper(tx)

    def body(carry: Any, _: Any) -> Any:
        params, state, _ = step(*carry)
        return (params, state), None

    params = start()
    return jax.jit(lambda c: jax.lax.scan(body, c, None, length=count)[0])((params, tx.init(params)))
