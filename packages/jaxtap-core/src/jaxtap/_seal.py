"""Sealing: keeping what XLA compiles as one piece in one piece, although a host call stands beside it.

XLA's CPU backend compiles a loop without host calls as a single function, in which a product and a sum may
become one rounding. A host call in the loop breaks that function up, and results move by a bit. A loop of
one trip whose bounds XLA does not know is such a function again: the program's own step runs inside it
exactly as before, and the host call stands outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jcore
from jax.interpreters import mlir

from jaxtap._jaxprs import inner, subjaxprs

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


# --- Constants -----------------------------------------------------------------------------------------------


class Constant:
    """A value that the program being lowered holds as a constant, to be written where it is used.

    XLA moves a loop's constant operands into its body and computes with them beforehand. Through two loops,
    one around the other, it does not; so the constant goes into the inner one from the start.
    """

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def read(self) -> Any:
        """The constant, as an equation of the function being traced."""
        return constant_p.bind(holder=self)


constant_p = jcore.Primitive("jaxtap_constant")


@constant_p.def_abstract_eval
def _abstract_eval(*, holder: Constant) -> Any:
    return jax.core.ShapedArray(holder.value.shape, holder.value.dtype)


mlir.register_lowering(
    constant_p, lambda _, *, holder: [mlir.ir_constant(holder.value)], inline=True
)


def constant_of(value: Any, aval: Any) -> Constant | None:
    """The constant that a value of the module being lowered is; None if it is none, or of a dtype without numpy form."""
    operation = getattr(value, "owner", None)
    if getattr(operation, "name", None) != "stablehlo.constant" or jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return None
    try:
        found = np.array(operation.attributes["value"])
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return None
    if found.dtype != aval.dtype or found.shape != aval.shape:
        return None
    return Constant(found)


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
