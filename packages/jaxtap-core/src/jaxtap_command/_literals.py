"""Arguments, written down as Python."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SMALL = 16
"""Elements up to which an array is written as it is; a larger one is drawn anew, with its shape and dtype."""


class NotWritten(Exception):
    """There is no short expression for a value."""


def literal(value: Any) -> str:
    """An expression that makes a value, or one like it.

    Raises:
      NotWritten: there is none.
    """
    if value is None or isinstance(value, bool | int | str | bytes | complex) or value is Ellipsis:
        return repr(value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is tuple:
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = literal(jax.random.key_data(value))
        return f"jax.random.wrap_key_data({data}, impl={str(jax.random.key_impl(value))!r})"
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    raise NotWritten(type(value).__name__)


def _array(value: Any) -> str:
    made = "np" if isinstance(value, np.ndarray | np.generic) else "jnp"
    kind, shape = np.dtype(value.dtype).kind, tuple(value.shape)
    dtype = f"{str(value.dtype)!r}"
    if value.size <= SMALL:
        listed = np.asarray(value).tolist()
        flat = np.ravel(np.asarray(value)).tolist() if kind == "f" else []
        if any(not math.isfinite(x) for x in flat):
            return f"{made}.array({_spelled(listed)}, dtype={dtype})"
        if getattr(value, "weak_type", False) and not shape:
            return f"jnp.asarray({listed!r})"
        return f"{made}.array({listed!r}, dtype={dtype})" if value.size else f"{made}.zeros({shape}, dtype={dtype})"
    if kind == "f" and made == "jnp":
        return f"jax.random.normal(jax.random.key(0), {shape}, dtype={dtype})"
    if kind == "f":
        return f"np.random.default_rng(0).normal(size={shape}).astype({dtype})"
    return f"{made}.zeros({shape}, dtype={dtype})"


def _spelled(value: Any) -> str:
    """Nested lists of numbers, those that are not finite among them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
