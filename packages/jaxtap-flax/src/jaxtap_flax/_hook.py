"""The hooks on Flax: a step of a `TrainState` or an `nnx.Optimizer` marks what went in and what came out."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Generator
from typing import Any

import jax

from jaxtap.internal import Guard, Patch, hook_settings, mark_for
from jaxtap_flax import _loss
from jaxtap_flax._loss import HOOK

MARK = "train_step"
_PACKAGES = ("flax", "optax")

_guard = Guard()


class _Steps(threading.local):
    """The steps under way in this thread, each collecting what `optax.apply_updates` is given."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []


_steps = _Steps()


@contextlib.contextmanager
def _collecting() -> Generator[dict[str, Any]]:
    found: dict[str, Any] = {}
    _steps.found.append(found)
    try:
        yield found
    finally:
        _steps.found.pop()


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, complex)) or hasattr(leaf, "dtype")


def _arrays(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: leaf if _is_array(leaf) else None, tree)


def _mark(**seen: Any) -> None:
    value = {"step": None, "loss": _loss.loss_here(), "state": None, "stats": None, **seen}
    # The structure of a marked value may say in words what its leaves cannot.
    value["order"] = {_loss.BETWEEN.join(_loss.order()): None}
    _loss.forget()
    mark_for(HOOK, MARK, _arrays(value), outside=_PACKAGES)


def _trained(tree: Any) -> Any:
    """The part of a gradient that goes to the optimizer: fp8 scales are overwritten with it instead."""
    return tree["params"] if "_overwrite_with_gradient" in tree else tree


def _apply_gradients(found: Any) -> Any:
    @functools.wraps(found)
    def apply_gradients(self: Any, *, grads: Any, **kwargs: Any) -> Any:
        if not hook_settings(HOOK):
            return found(self, grads=grads, **kwargs)
        with _collecting() as seen:
            new = found(self, grads=grads, **kwargs)
        if seen:
            stats = getattr(new, "batch_stats", None)
            _guard.call(
                "marking a step",
                lambda: _mark(step=self.step, grads=_trained(grads), state=new.opt_state, stats=stats, **seen),
            )
        return new

    return apply_gradients


def _update(found: Any) -> Any:
    from flax import nnx  # noqa: PLC0415 - importing this package loads no library; its user has

    @functools.wraps(found)
    def update(self: Any, model: Any, grads: Any, /, **kwargs: Any) -> Any:
        if not hook_settings(HOOK):
            return found(self, model, grads, **kwargs)
        step = self.step[...]
        with _collecting() as seen:
            updates = found(self, model, grads, **kwargs)
        if seen:
            pure = nnx.as_pure(nnx.state(grads, self.wrt))
            stats = nnx.as_pure(nnx.state(model, nnx.BatchStat))
            state = nnx.as_pure(self.opt_state)
            _guard.call("marking a step", lambda: _mark(step=step, grads=pure, state=state, stats=stats, **seen))
        return updates

    return update


def _apply_updates(found: Any) -> Any:
    @functools.wraps(found)
    def apply_updates(params: Any, updates: Any) -> Any:
        if hook_settings(HOOK):
            seen = {"params": params, "updates": updates}
            if _steps.found:
                _steps.found[-1].update(seen)
            else:
                _guard.call("marking a step", lambda: _mark(grads=_loss.grads_here(), **seen))
        return found(params, updates)

    return apply_updates


def patches() -> list[Patch]:
    """What is replaced while a monitor is open."""
    import optax  # noqa: PLC0415 - as above
    from flax import nnx  # noqa: PLC0415 - as above
    from flax.training import train_state  # noqa: PLC0415 - as above

    return [
        *_loss.patches(),
        Patch(train_state.TrainState, "apply_gradients", _apply_gradients),
        Patch(nnx.Optimizer, "update", _update),
        Patch(optax, "apply_updates", _apply_updates),
    ]
