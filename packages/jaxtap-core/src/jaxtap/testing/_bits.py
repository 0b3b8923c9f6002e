"""Whether two results are the same, to the last bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def assert_identical(result: Any, expected: Any) -> None:
    """Every leaf of one tree has the shape, the dtype and the bits of the same leaf of another.

    NaN equals a NaN of the same bits, and 0.0 does not equal -0.0.

    Args:
      result: a tree of arrays, keys or numbers.
      expected: another.

    Raises:
      AssertionError: if a leaf differs, or there are more in one of the two; names the first.

    >>> import numpy as np
    >>> from jaxtap.testing import assert_identical
    >>> assert_identical({"a": np.float32("nan")}, {"a": np.float32("nan")})
    >>> assert_identical({"a": 0.0}, {"a": -0.0})
    Traceback (most recent call last):
        ...
    AssertionError: ['a'] differs in 1 of 1 elements, first at (): 0.0, expected -0.0
    """
    one, other = (jax.tree_util.tree_leaves_with_path(tree) for tree in (result, expected))
    assert len(one) == len(other), f"there are {len(one)} leaves, expected {len(other)}"
    for (path, leaf), (_, right) in zip(one, other, strict=True):
        message = _difference(_array(leaf), _array(right))
        assert not message, f"{jax.tree_util.keystr(path) or 'the result'} {message}"


def _array(leaf: Any) -> np.ndarray:
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _difference(leaf: np.ndarray, right: np.ndarray) -> str:
    """What differs, in words; empty if nothing does."""
    if leaf.shape != right.shape or leaf.dtype != right.dtype:
        return f"is {leaf.dtype}{list(leaf.shape)}, expected {right.dtype}{list(right.shape)}"
    if leaf.tobytes() == right.tobytes():
        return ""
    bits = [np.frombuffer(each.tobytes(), np.uint8).reshape(each.size, -1) for each in (leaf, right)]
    differs = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    first = tuple(int(i) for i in np.unravel_index(differs[0], leaf.shape))
    return (
        f"differs in {len(differs)} of {leaf.size} elements, first at {first}: {leaf[first]}, expected {right[first]}"
    )
