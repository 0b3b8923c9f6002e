"""Sealing: keeping what XLA compiles as one piece in one piece, although a host call stands beside it.

XLA's CPU backend compiles a loop without host calls as a single function, in which a product and a sum may
become one rounding. A host call in the loop breaks that function up, and results move by a bit. A loop of
one trip whose bounds XLA does not know is such a function again: the program's own step runs inside it
exactly as before, and the host call stands outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._jaxprs import EFFECT, inner, subjaxprs
from jaxtap._mark import is_mark

# --- One step at a time --------------------------------------------------------------------------------------


def stepwise(i: Any, step: Callable[[Any], Any], state: Any) -> Any:
    """`step(state)`, compiled as a piece of its own. The state starts with a counter, which is `i` on entry."""
    return lax.while_loop(lambda s: s[0] < i + 1, step, state)


def sealed(i: Any, run: Callable[[], Sequence[Any]], avals: Sequence[Any]) -> list[Any]:
    """`run()`, compiled as a piece of its own.

    Args:
      i: a counter whose value XLA does not know.
      run: what to compute.
      avals: shape and dtype of each result.
    """
    empty = [jnp.zeros(a.shape, a.dtype) for a in avals]
    _, results = lax.while_loop(lambda s: s[0] < i + 1, lambda s: (s[0] + 1, list(run())), (i, empty))
    return results


# --- What is compiled as one piece ---------------------------------------------------------------------------

# Primitives whose lowering on CPU is a call out of compiled code, or otherwise keeps a loop from being one function.
_CALLS_OUT = frozenset(
    {
        "sort",
        "top_k",
        "approx_top_k",
        "cholesky",
        "cholesky_update",
        "lu",
        "qr",
        "geqrf",
        "geqp3",
        "householder_product",
        "ormqr",
        "eigh",
        "eig",
        "svd",
        "schur",
        "hessenberg",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
        "fft",
        "ffi_call",
        "conv_general_dilated",
        "pure_callback",
        "io_callback",
        "debug_callback",
        "debug_print",
        "custom_partitioning",
        "infeed",
        "outfeed",
    }
)


def is_one_piece(jaxpr: Any) -> bool:
    """Whether XLA's CPU backend would compile a loop with this body as one function."""
    return not any(
        eqn.primitive.name in _CALLS_OUT or not all(map(is_one_piece, subjaxprs(eqn))) for eqn in inner(jaxpr).eqns
    )


# --- What is cheap enough to be done twice -------------------------------------------------------------------

# A loop this small compiles in well under a tenth of a second, and its steps take about as long as a crossing.
_TWIN_EQUATIONS = 150
_TWIN_BYTES = 1 << 17


def is_cheap(jaxpr: Any) -> bool:
    """Whether a loop with this body may run twice: it is small, and does nothing that could be noticed twice."""
    equations, size, pure = _measure(inner(jaxpr))
    return pure and equations <= _TWIN_EQUATIONS and size <= _TWIN_BYTES


def is_pure(jaxpr: Any) -> bool:
    """Whether a loop with this body does nothing that could be noticed twice."""
    return _measure(inner(jaxpr))[2]


def _measure(jaxpr: Any) -> tuple[int, int, bool]:
    """Equations in a jaxpr, bytes that they write, and whether they have no effect but being seen."""
    equations, size, pure = 0, 0, jaxpr.effects <= {EFFECT}
    for eqn in jaxpr.eqns:
        if is_mark(eqn):
            continue
        equations += 1
        size += sum(v.aval.size * v.aval.dtype.itemsize for v in eqn.outvars if hasattr(v.aval, "dtype"))
        inside = [_measure(inner(sub)) for sub in subjaxprs(eqn)]
        pure = pure and (bool(inside) or EFFECT not in eqn.effects)
        for more_equations, more_size, more_pure in inside:
            equations, size, pure = equations + more_equations, size + more_size, pure and more_pure
    return equations, size, pure
