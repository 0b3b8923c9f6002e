"""Reading values of a body after the fact, from what the loop keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._jaxprs import evaluator, is_literal
from jaxtap._mark import is_mark


class Slice:
    """A value that is cut out of a stacked array only if someone reads it."""

    def __init__(self, cut: Callable[[Any, Any], Any], stacked: Any, i: Any) -> None:
        self._cut, self._stacked, self._i = cut, stacked, i

    def read(self) -> Any:
        """The slice."""
        return self._cut(self._stacked, self._i)


def read(value: Any) -> Any:
    """A value that may yet have to be cut out."""
    return value.read() if isinstance(value, Slice) else value


def sliced(body: Any, operands: Sequence[Any], known: dict[Any, Any], outs: dict[Any, Any]) -> list[Any]:
    """Values of some variables of a body, from those of its arguments and settled outputs.

    Args:
      body: the open jaxpr.
      operands: the variables wanted.
      known: values of the body's arguments.
      outs: values of outputs that the loop has kept.
    """
    values = known | outs
    for operand in operands:
        if is_literal(operand) or operand in values:
            continue
        found = turned(body, operand, outs)
        if found is not None:
            var, order = found
            values[operand] = lax.transpose(read(values[var]), order)
    missing = [v for v in operands if not is_literal(v) and v not in values]
    if missing:
        eqns = _producers(body, missing, values)
        needs = list(dict.fromkeys(v for e in eqns for v in e.invars if not is_literal(v) and v in values))
        values.update(
            zip(missing, evaluator(body, eqns, needs, missing)(*(read(values[v]) for v in needs)), strict=True)
        )
    found = [v.val if is_literal(v) else read(values[v]) for v in operands]
    # A constant that is written into the program is a bare number; whoever selects expects an array.
    return [value if isinstance(value, jax.Array) else jnp.asarray(value) for value in found]


def _producers(body: Any, wanted: Sequence[Any], values: dict[Any, Any]) -> list[Any]:
    """The equations that lead from known values to the wanted ones."""
    needed, eqns = set(wanted), []
    for eqn in reversed(body.eqns):
        if not is_mark(eqn) and any(v in needed for v in eqn.outvars):
            eqns.append(eqn)
            needed.update(v for v in eqn.invars if not is_literal(v) and v not in values)
    return eqns[::-1]


def turned(body: Any, operand: Any, outs: dict[Any, Any]) -> tuple[Any, tuple[int, ...]] | None:
    """An output that is a transpose of `operand` (vmap moves axes so), and the order of axes that turns it back."""
    for eqn in body.eqns:
        if eqn.primitive.name == "transpose" and eqn.invars[0] is operand and eqn.outvars[0] in outs:
            order = eqn.params["permutation"]
            return eqn.outvars[0], tuple(order.index(i) for i in range(len(order)))
    return None


def output_position(body: Any, operand: Any, num_carry: int) -> int | None:
    """Which output of a body holds `operand`, as it is or transposed; None if none does."""
    outs = {v: None for v in body.outvars[num_carry:] if not is_literal(v)}
    found = turned(body, operand, outs)
    wanted = operand if operand in outs else found[0] if found else None
    return None if wanted is None else list(body.outvars).index(wanted)
