"""The dtypes that JAX has, by name."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

_NUMPY_TYPES = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
)
_NUMPY_DTYPES: dict[str, np.dtype[Any]] = {np.dtype(kind).name: np.dtype(kind) for kind in _NUMPY_TYPES}


@functools.cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype that JAX has, whatever its byte order.

    Raises:
      TypeError: it is another dtype.
    """
    name = "float0" if dtype == jax.dtypes.float0 else dtype.name
    if dtype not in (dtype_named(name), dtype_named(name).newbyteorder()):
        raise TypeError(f"dtype {dtype} has no JSON form")
    return name


@functools.cache
def dtype_named(name: str) -> np.dtype[Any]:
    if name == "float0":
        return np.dtype(jax.dtypes.float0)
    if name in _NUMPY_DTYPES:
        return _NUMPY_DTYPES[name]
    scalar_type: Any = getattr(ml_dtypes, name, None)
    if not (isinstance(scalar_type, type) and issubclass(scalar_type, np.generic)):
        raise TypeError(f"{name!r} is not a dtype that this version of jax knows")
    return np.dtype(scalar_type)


@functools.cache
def family(dtype: np.dtype[Any]) -> type[int] | type[float] | type[complex] | None:
    """How items of this dtype are written as numbers; None where they are not."""
    if dtype == np.bool_ or jnp.issubdtype(dtype, np.integer):
        return int
    if jnp.issubdtype(dtype, np.floating):
        return float
    return complex if dtype.kind == "c" else None


def part_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"float{dtype.itemsize * 4}")
