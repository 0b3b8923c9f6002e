"""Where two columns of values differ."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart: `|a - b| <= atol + rtol * |b|`. With zeros, every bit counts."""

    rtol: float = 0.0
    atol: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether every bit counts."""
        return not self.rtol and not self.atol


def differing(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """In which elements two arrays of one shape differ. NaN is equal to NaN, whatever its bits."""
    if a.dtype == object or b.dtype == object:
        cells = zip(a.tolist(), b.tolist(), strict=True)
        return np.fromiter((differs(x, y, tolerance) for x, y in cells), bool, len(a))
    if not _is_number(a) or not _is_number(b):
        return np.asarray(a != b)
    if tolerance.is_exact and a.dtype == b.dtype:
        return _bits_differ(a, b)
    a, b = _wide(a, tolerance), _wide(b, tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        far = a != b
        if not tolerance.is_exact:
            far &= ~(np.abs(a - b) <= tolerance.atol + tolerance.rtol * np.abs(b))
            # An infinity is near to nothing but itself.
            far |= (np.isinf(a) | np.isinf(b)) & (a != b)
    return far & ~(np.isnan(a) & np.isnan(b))


def _bits_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.itemsize == 0:
        return np.zeros(a.shape, bool)
    raw = [np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize) for x in (a, b)]
    differ = (raw[0] != raw[1]).any(axis=-1)
    if jnp.issubdtype(a.dtype, jnp.inexact):
        differ &= ~((a != a) & (b != b))
    return differ


def _is_number(array: np.ndarray) -> bool:
    return array.dtype == np.bool_ or jnp.issubdtype(array.dtype, jnp.number)


def _wide(array: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Numbers of any dtype as ones that NumPy can compare with those of another."""
    if tolerance.is_exact and jnp.issubdtype(array.dtype, jnp.integer) and array.dtype != np.uint64:
        return array.astype(np.int64)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    return array.astype(np.float64)


def differs(a: Any, b: Any, tolerance: Tolerance) -> bool:
    """Whether two leaves of single events differ, in form or value."""
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return a is not b and a != b
    try:
        x, y = np.asarray(a), np.asarray(b)
    except Exception:  # noqa: BLE001 - a leaf may be of any type
        return bool(a != b)
    if x.dtype == object or y.dtype == object:
        return bool(a != b)
    return x.shape != y.shape or bool(differing(x, y, tolerance).any())
