"""Whether a tripwire fires anywhere in a loop, found out without sending anything.

A tiny loop is left as it is, and a copy beside it sends its events. While nothing is sent, the copy need not
hold host calls, and XLA compiles it as tightly as the loop itself: only if this says so is the copy that sends run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._announce import listeners, tripped, wires
from jaxtap._around import chosen
from jaxtap._hunt import hunters
from jaxtap._jaxprs import (
    CALLS,
    advance,
    consts,
    inner,
    is_literal,
    jit_p,
    remat_p,
    scan_counts,
    scan_p,
    subjaxprs,
    while_p,
)
from jaxtap._mark import has_marks, is_mark, is_output, is_point, leaves_of, own_marks, quiet, strip
from jaxtap._retype import bind_typed

FIRES = tuple[list[Any], Any]


def fires(primitive: Any, params: dict[str, Any], args: Sequence[Any]) -> Any:
    """Whether a tripwire would fire in a marked loop."""
    return (_scan if primitive is scan_p else _while)(params, args)[1]


def would_fire(closed: Any, args: Sequence[Any]) -> Any:
    """Whether a tripwire would fire within one evaluation of a jaxpr, that on its loop's own state left out."""
    return _jaxpr(closed, args, own_state=False)[1]


def _scan(params: dict[str, Any], args: Sequence[Any]) -> FIRES:
    num_consts, num_carry = scan_counts(params)
    closed = params["jaxpr"]
    fixed = list(args[:num_consts])

    def step(state: Any, x: Any) -> Any:
        outs, fired = _jaxpr(closed, [*fixed, *state[0], *x])
        return (outs[:num_carry], state[1] | fired), outs[num_carry:]

    start = (list(args[num_consts : num_consts + num_carry]), jnp.bool_(False))
    xs = list(args[num_consts + num_carry :])
    (carry, fired), ys = lax.scan(step, start, xs, params["length"], params["reverse"])
    xs_at_end = [jnp.zeros(v.aval.shape, v.aval.dtype) for v in inner(closed).invars[num_consts + num_carry :]]
    return [*carry, *ys], fired | _at_end(closed, [*fixed, *carry, *xs_at_end])


def _while(params: dict[str, Any], args: Sequence[Any]) -> FIRES:
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, fixed = list(args[:num_cond]), list(args[num_cond : num_cond + num_body])
    condition, closed = params["cond_jaxpr"], params["body_jaxpr"]

    def going_on(state: Any) -> Any:
        (pred,), _ = _jaxpr(strip(condition), [*cond_consts, *state[0]])
        return pred.any()

    def step(state: Any) -> Any:
        carry, fired = state
        outs, found = _jaxpr(closed, [*fixed, *carry])
        (pred,), other = _jaxpr(condition, [*cond_consts, *carry])
        if jnp.ndim(pred):
            outs = [chosen(pred, new, old) for new, old in zip(outs, carry, strict=True)]
        return outs, fired | found | other

    carry, fired = lax.while_loop(going_on, step, (list(args[num_cond + num_body :]), jnp.bool_(False)))
    _, last = _jaxpr(condition, [*cond_consts, *carry])
    return carry, fired | last | _at_end(closed, [*fixed, *carry])


def _at_end(closed: Any, ins: Sequence[Any]) -> Any:
    """Whether a tripwire on the state fires on the state after the last step."""
    body = inner(closed)
    known = dict(zip(body.constvars, consts(closed), strict=True)) | dict(zip(body.invars, ins, strict=True))
    fired: Any = jnp.bool_(False)
    for mark in own_marks(body):
        if not is_output(mark):
            fired |= _of_state(mark, [v.val if is_literal(v) else known[v] for v in leaves_of(mark)])
    return fired


def _of_state(mark: Any, values: Sequence[Any]) -> Any:
    fired: Any = jnp.bool_(False)
    for wire in wires(mark.params):
        fired |= tripped(wire, mark.params, values).any()
    if hunters([mark]):
        for value in values:
            if jnp.issubdtype(jnp.result_type(value), jnp.inexact):
                fired |= ~jnp.isfinite(value).all()
    return fired


def _jaxpr(closed: Any, args: Sequence[Any], own_state: bool = True) -> FIRES:
    """The results of a jaxpr, and whether a tripwire fires in it."""
    jaxpr = inner(closed)
    values = dict(zip(jaxpr.constvars, consts(closed), strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    fired: Any = jnp.bool_(False)

    def value(atom: Any) -> Any:
        return atom.val if is_literal(atom) else values[atom]

    pending: list[Any] = []
    for eqn in jaxpr.eqns:
        marked = is_mark(eqn)
        if not marked and not any(map(has_marks, subjaxprs(eqn))):
            pending.append(eqn)
            continue
        if pending:
            advance(jaxpr, pending, values)
            pending = []
        if not marked:
            outs, found = _equation(eqn, [value(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, outs, strict=True))
            fired |= found
        elif is_point(eqn):
            operands = [value(v) for v in leaves_of(eqn)]
            for listener in listeners(eqn.params):
                if listener.trips_on is not None:
                    fired |= tripped(listener, eqn.params, operands).any()
        elif own_state and eqn.params["site"].kind in ("carry", "output"):
            fired |= _of_state(eqn, [value(v) for v in leaves_of(eqn)])
    if pending:
        advance(jaxpr, pending, values)
    return [value(v) for v in jaxpr.outvars], fired


def _equation(eqn: Any, args: list[Any]) -> FIRES:
    primitive, params = eqn.primitive, eqn.params
    if primitive is scan_p:
        return _scan(params, args)
    if primitive is while_p:
        return _while(params, args)
    if primitive is jit_p or primitive is remat_p or primitive.name in CALLS:
        (called,) = subjaxprs(eqn)
        return _jaxpr(called, args)
    if primitive.name == "cond":
        return lax.switch(args[0], [lambda *ops, b=b: _jaxpr(b, ops) for b in params["branches"]], *args[1:])
    return bind_typed(primitive, args, [var.aval for var in eqn.invars], quiet(params)), jnp.bool_(False)
