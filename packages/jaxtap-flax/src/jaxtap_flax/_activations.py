"""What modules return: hooks on the modules of linen and nnx, and what is sent of an activation."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import itertools
import threading
from collections.abc import Generator, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap.internal import Patch, hook_settings, leaves_by, mark_for, non_finite, square_sum
from jaxtap_flax import _loss

HOOK = "jaxtap_flax.activations"
_PACKAGES = ("flax",)

# Numbers calls of modules as they are traced.
_order = itertools.count()


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which modules a lens wants.

    Attributes:
      patterns: globs, each of a module's path, of the end of it, or of its class.
      in_training: only where the module is called in a function that is being differentiated.
    """

    patterns: tuple[str, ...]
    in_training: bool = False

    def wants(self, path: str, kind: str) -> bool:
        """Whether a module is wanted."""
        if self.in_training and not _loss.is_inside():
            return False
        names = (path, path.rpartition("/")[2], kind)
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns for name in names)


def rms(leaves: Any) -> Any:
    """The root mean square of all floating-point leaves together."""
    found = leaves_by(list(leaves), None).get("", [])
    return jnp.sqrt(square_sum(found) / max(sum(leaf.size for leaf in found), 1))


def of_output(leaves: Any) -> dict[str, Any]:
    """What is sent of an activation: its root mean square, largest magnitude, share of zeros, and bad elements."""
    found = leaves_by(list(leaves), None).get("", [])
    count = max(sum(leaf.size for leaf in found), 1)
    zeros, largest = jnp.float32(0.0), jnp.float32(0.0)
    for leaf in found:
        zeros = zeros + jnp.sum(leaf == 0).astype(jnp.float32)
        largest = jnp.maximum(largest, jnp.max(jnp.abs(leaf), initial=0).astype(jnp.float32))
    order = {"order": int(next(iter(leaves.tree()["order"])))} if hasattr(leaves, "tree") else {}
    return order | {
        "activation_rms": rms(leaves),
        "activation_max": largest,
        "dead_fraction": zeros / count,
        "activation_nonfinite": non_finite(found),
    }


def _seen(path: str, kind: str, output: Any) -> Any:
    """The output of a module, marked for the lenses that want it."""
    floats = [x for x in jax.tree_util.tree_leaves(output) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    if not floats:
        return output
    marked = mark_for(
        HOOK,
        path.replace("/", ".") or kind,
        # Host calls come in any order: the structure of the value tells that of the modules.
        {"output": output, "order": {str(next(_order)): None}},
        outside=_PACKAGES,
        backward=True,
        where=lambda wanted: wanted.wants(path, kind),
    )
    return marked["output"]


def _wanted(path: str, kind: str) -> bool:
    return any(each.wants(path, kind) for each in hook_settings(HOOK))


# --- linen ---------------------------------------------------------------------------------------------------


def _intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
    path, kind = "/".join(context.module.path), type(context.module).__name__
    if hook_settings(_loss.HOOK):
        _loss.called(path)
    output = call(*args, **kwargs)
    if context.method_name != "__call__" or not _wanted(path, kind):
        return output
    return _seen(path, kind, output)


@contextlib.contextmanager
def intercepting() -> Generator[None]:
    """Linen's own interception, in this thread."""
    import flax.linen as nn  # noqa: PLC0415 - importing this package loads no library; its user has

    with nn.intercept_methods(_intercept):
        yield


# --- nnx -----------------------------------------------------------------------------------------------------


class _Paths(threading.local):
    """Where the modules of the model that is being called are: an object is the same only within one trace."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.calls = 0


_paths = _Paths()


def _path_of(module: Any) -> str:
    from flax import nnx  # noqa: PLC0415 - as above

    if id(module) not in _paths.known:
        # A transform has made the modules anew: those inside of this one are known by where they are in it.
        root = type(module).__name__ if _paths.calls > 1 else ""
        for path, each in nnx.iter_modules(module):
            words = [root, *map(str, path)] if root else list(map(str, path))
            _paths.known[id(each)] = "/".join(words)
    return _paths.known[id(module)]


def _call(found: Any) -> Any:
    """In place of the `__call__` of a class of modules."""

    @functools.wraps(found)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts = bool(hook_settings(_loss.HOOK)) and _loss.is_inside()
        if not counts and not hook_settings(HOOK):
            return found(self, *args, **kwargs)
        _paths.calls += 1
        try:
            path, kind = _path_of(self), type(self).__name__
            _loss.called(path)
            output = found(self, *args, **kwargs)
            return _seen(path, kind, output) if _wanted(path, kind) else output
        finally:
            _paths.calls -= 1
            if not _paths.calls:
                _paths.known.clear()

    return call


def _classes(base: type) -> Iterator[type]:
    for derived in base.__subclasses__():
        yield derived
        yield from _classes(derived)


def patches() -> list[Patch]:
    """The classes of nnx modules that there are, each with its own `__call__` replaced."""
    from flax import nnx  # noqa: PLC0415 - as above

    own = dict.fromkeys(each for each in _classes(nnx.Module) if "__call__" in vars(each))
    return [Patch(each, "__call__", _call) for each in own]
