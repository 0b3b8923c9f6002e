"""How far an inverse mass matrix is stretched: its smallest and largest eigenvalue, on the device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def extremes(matrix: Any) -> tuple[Any, Any]:
    """Smallest and largest eigenvalue of an inverse mass matrix.

    Args:
      matrix: a diagonal `(D,)`, a dense matrix `(D, D)`, or the factors `(sigma, U, lam)` of BlackJAX's low-rank metric
        `diag(sigma) (I + U (diag(lam) - I) U^T) diag(sigma)`.
    """
    if isinstance(matrix, tuple):
        matrix = _dense(*matrix)
    if jnp.ndim(matrix) < 2:
        return jnp.min(matrix), jnp.max(matrix)
    values = jnp.linalg.eigvalsh(matrix)
    return values[..., 0], values[..., -1]


def is_costly(matrix: Any) -> bool:
    """Whether the extremes take an eigendecomposition."""
    return isinstance(matrix, tuple) or jnp.ndim(matrix) >= 2


def condition_number(matrix: Any) -> Any:
    """Largest over smallest eigenvalue."""
    low, high = extremes(matrix)
    return high / low


def extremes_if(wanted: Any, matrix: Any) -> tuple[Any, Any]:
    """The extremes where `wanted`, a traced boolean, is true; else NaN."""
    dtype = jnp.result_type(matrix[0] if isinstance(matrix, tuple) else matrix)
    nan = jnp.full((), jnp.nan, dtype)
    return jax.lax.cond(wanted, lambda m: extremes(m), lambda m: (nan, nan), matrix)


def _dense(sigma: Any, vectors: Any, values: Any) -> Any:
    core = jnp.eye(sigma.shape[0], dtype=sigma.dtype) + (vectors * (values[None, :] - 1.0)) @ vectors.T
    return sigma[:, None] * core * sigma[None, :]
