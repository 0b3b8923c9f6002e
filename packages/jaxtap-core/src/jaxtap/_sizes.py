"""How large a tree of arrays is: sums of squares and counts of bad elements, as a whole or by part of its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

BY = ("layer", "module", "leaf", None)


def words(path: Sequence[Any]) -> tuple[str, ...]:
    """A path in a tree, in words; that a variable is a value which another object holds is left out."""
    own = [key for key in path if getattr(key, "name", None) != "value"]
    return tuple(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in own)


def group_of(path: Sequence[str], by: str | None) -> str:
    """The part of a tree that a leaf is counted in.

    Args:
      path: of the leaf, in words, such as `("params", "Block_0", "Dense_0", "kernel")`. A first `params` is left out.
      by: `"leaf"` for its whole path, `"layer"` for what holds it, `"module"` for the outermost of those, None for the
        whole tree, whose name is empty.
    """
    own = tuple(path[1:] if len(path) > 1 and path[0] == "params" else path)
    if by is None:
        return ""
    if by == "module":
        own = own[:1]
    elif by == "layer":
        own = own[:-1] or own
    return "/".join(own)


def leaves_by(tree: Any, by: str | None) -> dict[str, list[Any]]:
    """The floating-point leaves of a tree by group, in the order of the tree."""
    groups: dict[str, list[Any]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            groups.setdefault(group_of(words(path), by), []).append(leaf)
    return groups


def _total(each: Callable[[Any], Any], leaves: Sequence[Any], zero: Any) -> Any:
    total = zero
    for leaf in leaves:
        total = total + each(leaf)
    return total


def _wide(leaf: Any) -> Any:
    """A leaf in no less than float32: squares of narrower ones overflow."""
    real = jnp.abs(leaf) if jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating) else jnp.asarray(leaf)
    return real if real.dtype == jnp.float64 else real.astype(jnp.float32)


def square_sum(leaves: Sequence[Any]) -> Any:
    """The sum of the squares of all elements, a float32 (float64 where a leaf is)."""
    wide = any(jnp.result_type(leaf) in (jnp.float64, jnp.complex128) for leaf in leaves)
    dtype = jnp.float64 if wide else jnp.float32
    return _total(lambda leaf: jnp.sum(jnp.square(_wide(leaf))).astype(dtype), leaves, jnp.zeros((), dtype))


def norm(leaves: Sequence[Any]) -> Any:
    """The Euclidean norm of all leaves taken together, as `optax.tree.norm` has it."""
    return jnp.sqrt(square_sum(leaves))


def non_finite(leaves: Sequence[Any]) -> Any:
    """How many elements are NaN or infinite, an int32."""
    return _total(lambda leaf: jnp.sum(~jnp.isfinite(leaf), dtype=jnp.int32), leaves, jnp.int32(0))
