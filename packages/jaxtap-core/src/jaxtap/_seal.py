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


def unshared(values: Sequence[Any]) -> list[Any]:
    """Values for a copy of what the program does with them.

    XLA would find that both compute the same, as where it takes out of a loop what does not change in it, and
    share it: a value with two users is not fused the way it is with one.
    """
    return list(lax.optimization_barrier(list(values)))


# --- What is done twice ----------------------------------------------------------------------------------


def is_pure(jaxpr: Any) -> bool:
    """Whether a jaxpr does nothing that could be noticed twice: no effect but that of being seen."""
    if not inner(jaxpr).effects <= {EFFECT}:
        return False
    for eqn in inner(jaxpr).eqns:
        inside = list(subjaxprs(eqn))
        if eqn.primitive.name in ("pure_callback", "io_callback") or not all(map(is_pure, inside)):
            return False
        if not inside and EFFECT in eqn.effects and not is_mark(eqn):
            return False
    return True


# What a tiny loop's step writes: XLA keeps so little in registers, across steps.
_TINY_BYTES = 2048


def is_tiny(jaxpr: Any) -> bool:
    """Whether a loop with this body is so small that doing it twice costs next to nothing."""
    return _written(inner(jaxpr)) <= _TINY_BYTES


def _written(jaxpr: Any) -> int:
    """Bytes that the equations of a jaxpr write, inner loops counted once."""
    size = 0
    for eqn in jaxpr.eqns:
        if not is_mark(eqn):
            size += sum(v.aval.size * v.aval.dtype.itemsize for v in eqn.outvars if hasattr(v.aval, "dtype"))
            size += sum(_written(inner(sub)) for sub in subjaxprs(eqn))
    return size
