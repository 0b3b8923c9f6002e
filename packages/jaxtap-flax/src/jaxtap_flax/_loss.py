"""The loss of a step: what `value_and_grad` has returned last, if it can still be used where the step is."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

from jaxtap.internal import Patch, hook_settings

HOOK = "jaxtap_flax.step"
BETWEEN = "\n"


class _Last(threading.local):
    """What `value_and_grad` has returned last in this thread, held weakly: it must not outlive its trace."""

    state: Any = None
    loss: Any = None
    grads: Any = None
    inside = 0
    order: tuple[str, ...] = ()


_last = _Last()


def _trace() -> Any:
    return get_opaque_trace_state(convention="flax")


def _note(out: Any) -> None:
    try:
        loss, grads = jax.tree_util.tree_leaves(out[0])[0], jax.tree_util.tree_map(weakref.ref, out[1])
        _last.state, _last.loss, _last.grads = _trace(), weakref.ref(loss), grads
    except (TypeError, IndexError):
        forget()


def forget() -> None:
    """Forget the loss: it has been told."""
    _last.state = _last.loss = _last.grads = None


def _is_here() -> bool:
    return _last.state is not None and _last.state == _trace()


def loss_here() -> Any:
    """The loss, if `value_and_grad` was called in the trace that is under way; else None."""
    return _last.loss() if _is_here() else None


def grads_here() -> Any:
    """The gradient, likewise."""
    if not _is_here():
        return None
    leaves, treedef = jax.tree_util.tree_flatten(_last.grads)
    found = [leaf() for leaf in leaves]
    return None if any(leaf is None for leaf in found) else jax.tree_util.tree_unflatten(treedef, found)


def is_inside() -> bool:
    """Whether a function is being differentiated by `value_and_grad`: a training step, not an evaluation."""
    return _last.inside > 0


def called(path: str) -> None:
    """Note that a module is called, in the forward pass of a step."""
    if _last.inside and path and path not in _last.order:
        _last.order = (*_last.order, path)


def order() -> tuple[str, ...]:
    """The modules that were called in the forward pass, in order."""
    return _last.order


def _value_and_grad(found: Any) -> Any:
    """In place of `jax.value_and_grad`: functions that are made with it say what they have returned."""

    @functools.wraps(found)
    def value_and_grad(*args: Any, **kwargs: Any) -> Any:
        run = found(*args, **kwargs)

        @functools.wraps(run)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if not hook_settings(HOOK):
                return run(*args, **kwargs)
            _last.order = () if not _last.inside else _last.order
            _last.inside += 1
            try:
                out = run(*args, **kwargs)
            finally:
                _last.inside -= 1
            _note(out)
            return out

        return noted

    return value_and_grad


def patches() -> list[Patch]:
    """What is replaced so that the loss is seen."""
    return [Patch(jax, "value_and_grad", _value_and_grad)]
