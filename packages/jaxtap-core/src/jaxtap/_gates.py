"""Branches that only some lanes take.

Under vmap, a `cond` whose predicate differs per lane becomes both branches and a selection: each runs for all lanes.
What is marked in a branch is of the lanes that take it. So a branch with marks is put into a function of its own, with
the predicate marked in it: a gate, which holds for all that is in that function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray, Tracer
from jax.extend import core as jcore
from jax.interpreters import batching, mlir

from jaxtap._active import unseen
from jaxtap._around import Around, aligned
from jaxtap._jaxprs import WeakMemo, cond_p, function_source, inner, subjaxprs
from jaxtap._mark import has_marks, is_gate, mark_p, strip
from jaxtap._payload import lanes_of, over_lanes


@dataclasses.dataclass(frozen=True)
class Gate:
    """What a gate stands for.

    Attributes:
      branch: which branch of its `cond`.
      bodies: where the functions in that `cond` were written, as in the address of one that is left whole.
    """

    branch: int
    bodies: tuple[str, ...]
    kind: str = "gate"
    op: str = "cond"
    names: tuple[str, ...] = ("taken",)


_gated = WeakMemo()


def gate_of(eqn: Any) -> Gate | None:
    """The gate of an equation that calls a branch, or None."""
    for sub in filter(has_marks, subjaxprs(eqn)):
        for mark in filter(is_gate, inner(sub).eqns):
            return mark.params["site"]
    return None


def is_gated(jaxpr: Any) -> bool:
    """Whether a jaxpr is a branch behind a gate."""
    return has_marks(jaxpr) and any(map(is_gate, inner(jaxpr).eqns))


def behind(gate: Any, values: Sequence[Any], around: Around) -> Around:
    """The surroundings of what lies behind a gate: the lanes that run it are those that take the branch.

    Args:
      gate: its mark.
      values: what it stands beside.
      around: the surroundings of the gate.
    """
    layers = gate.params["layers"]
    lanes = lanes_of(layers)
    taken = over_lanes(layers, 1, lambda value: value[0])(list(values))
    outer = aligned(around, lanes)
    return dataclasses.replace(around, lanes=lanes, mask=taken if outer is None else taken & outer)


def _behind_a_gate(branch: Any, number: int, bodies: tuple[str, ...], returns: bool) -> Any:
    """A branch that is also given the index of the branch that is taken, with a gate in front.

    Args:
      branch: the branch.
      number: which one of its `cond`.
      bodies: where the functions in that `cond` were written.
      returns: whether it returns anything, or is run for its events alone.
    """

    def gated(call: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def run(taken: Any, *operands: Any) -> list[Any]:
            # The operands witness which axes are mapped.
            mark_p.bind(taken, *operands, site=Gate(number, bodies), path=(), lenses=(), layers=())
            results = call(taken, *operands)
            return results if returns else []

        return jax.jit(run)

    def run(index: Any, *operands: Any) -> list[Any]:
        # Two calls: what runs eagerly is a program of its own, and the outer one is not lowered as a call.
        return gated(gated(lambda _, *operands: jcore.jaxpr_as_fun(branch)(*operands)))(index == number, *operands)

    def make() -> Any:
        index = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.make_jaxpr(run)(index, *(v.aval for v in inner(branch).invars))

    return _gated.get(inner(branch), (number, bodies, returns), make)


_staged_p = jcore.Primitive("jaxtap_staged")
_staged_p.def_impl(lambda: False)
_staged_p.def_abstract_eval(lambda: ShapedArray((), jnp.bool_))
mlir.register_lowering(_staged_p, mlir.lower_fun(lambda: jnp.bool_(True), multiple_results=False))


def gating(rule: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's rule for mapping a `cond`, with gates in front of marked branches where its predicate is mapped."""

    def batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], *, branches: Any, **params: Any) -> Any:
        if dims[0] is None or "branches_platforms" in params or not any(map(has_marks, branches)):
            return rule(axis, args, dims, branches=branches, **params)
        bodies = tuple(map(function_source, branches))
        staged = isinstance(_staged_p.bind(), Tracer)
        gated = tuple(_behind_a_gate(branch, i, bodies, staged) for i, branch in enumerate(branches))
        found = rule(axis, (args[0], *args), (dims[0], *dims), branches=gated, **params)
        if staged:
            return found
        # A call compiles what would run one operation after the other, and so rounds otherwise.
        return unseen(rule, axis, args, dims, branches=tuple(map(strip, branches)), **params)

    return batch


def install() -> None:
    """Put the rule in front of JAX's own. Without a mark it passes everything on unchanged."""
    batching.fancy_primitive_batchers[cond_p] = gating(batching.fancy_primitive_batchers[cond_p])
