"""What of a loop the program needs, had no one marked it.

JAX leaves out of a program what it does not need: inputs that a loop's body never reads, state that leads to no
result, results that no one uses. A mark reads the whole state, and so keeps all of it. These functions tell what
would have been left out, so that the loop that computes the program's result can be what it is without a lens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.interpreters import partial_eval as pe

from jaxtap._jaxprs import WeakMemo, as_function, inner, rewrap, scan_counts, scan_p, unnamed, while_p
from jaxtap._mark import has_marks, quiet, strip
from jaxtap._retype import bind_typed, stacked

# Of a marked body, which of its loop's results the program uses, as JAX found when it left out the rest.
_used = WeakMemo()


def body_name(primitive: Any) -> str:
    """The parameter that holds a loop's body."""
    return "jaxpr" if primitive is scan_p else "body_jaxpr"


def remembering(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's rule for leaving out what is not used, remembering for a marked loop which of its results are.

    Their number is that of the results that the new loop has.
    """

    def leave_out(used: Sequence[bool], *rest: Any) -> Any:
        needed, eqn = rule(used, *rest)
        name = body_name(primitive)
        if eqn is None or not has_marks(eqn.params[name]):
            return needed, eqn
        before = len(used)
        flags = tuple(u for u, v in zip(used, rest[-1].outvars, strict=True) if v in eqn.outvars)
        if len(eqn.outvars) == before:
            flags = tuple(used)
        # A body of its own, as another loop may share it whose results are used otherwise.
        body = eqn.params[name]
        own = rewrap(body, inner(body).replace()) if inner(body) is not body else body.replace()
        _used.get(inner(own), None, lambda: flags)
        return needed, eqn.replace(params={**eqn.params, name: own})

    return leave_out


def keep_whole(used: Sequence[bool], *rest: Any) -> Any:
    """What JAX does for a primitive that has no rule for leaving out what is not used: all or nothing."""
    eqn = rest[-1]
    if not any(used) and not eqn.effects:
        return [False] * len(eqn.invars), None
    return [True] * len(eqn.invars), eqn


def used_results(primitive: Any, params: dict[str, Any], count: int) -> list[bool]:
    """Which results of a loop the program uses, as far as is known."""
    flags = _used.get(inner(params[body_name(primitive)]), None, lambda: (True,) * count)
    return list(flags) if len(flags) == count else [True] * count


@dataclasses.dataclass(frozen=True)
class Live:
    """What of a loop the program needs.

    Attributes:
      carry: whether each carry leaf leads to a result.
      inputs: whether any result of the body depends on each of its arguments: constants, carry, and slices of `xs`.
    """

    carry: tuple[bool, ...]
    inputs: tuple[bool, ...]


def live(primitive: Any, params: dict[str, Any]) -> Live:
    """What of a loop the program needs, had no one marked it."""
    body = strip(params[body_name(primitive)])
    jaxpr = inner(body)
    num_consts = scan_counts(params)[0] if primitive is scan_p else params["body_nconsts"]
    num_carry = scan_counts(params)[1] if primitive is scan_p else len(jaxpr.outvars)
    carry = used_results(primitive, params, len(jaxpr.outvars))[:num_carry]
    others = [True] * (len(jaxpr.outvars) - num_carry)
    asked = _asked(params) if primitive is while_p else [False] * num_carry
    everything = pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
    while True:
        inputs = pe.dce_jaxpr(jaxpr, [*carry, *others])[1]
        read = inputs[num_consts : num_consts + num_carry]
        wider = [c or r or a for c, r, a in zip(carry, read, asked, strict=True)]
        if wider == carry:
            return Live(tuple(carry), tuple(everything))
        carry = wider


def _asked(params: dict[str, Any]) -> list[bool]:
    """Which carry leaves the condition of a while reads."""
    condition = inner(strip(params["cond_jaxpr"]))
    inputs = pe.dce_jaxpr(condition, [True])[1]
    return list(inputs[params["cond_nconsts"] :])


def _operand_avals(primitive: Any, params: dict[str, Any]) -> list[Any]:
    """The types that a loop expects of its operands."""
    body = [var.aval for var in inner(params[body_name(primitive)]).invars]
    if primitive is while_p:
        asked = inner(params["cond_jaxpr"]).invars[: params["cond_nconsts"]]
        return [*(var.aval for var in asked), *body]
    first = sum(scan_counts(params))
    return [*body[:first], *(stacked(aval, params["length"]) for aval in body[first:])]


def bare(primitive: Any, params: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """The results of a loop as it is without any lens; what went in for those that the program does not use."""
    silent, avals = quiet(params), _operand_avals(primitive, params)
    found = jax.make_jaxpr(lambda *args: bind_typed(primitive, args, avals, silent))(*args)
    used = used_results(primitive, params, len(found.out_avals))
    jaxpr, needed = pe.dce_jaxpr(inner(found), used)[:2]
    outs = iter(as_function(jaxpr)(*(a for a, n in zip(args, needed, strict=True) if n)))
    first = scan_counts(params)[0] if primitive is scan_p else params["cond_nconsts"] + params["body_nconsts"]
    # Only carry leaves can be left unused here: JAX takes unused outputs out of the loop.
    return [next(outs) if u else args[first + i] for i, u in enumerate(used)]


def plain(closed: Any, ins: Sequence[Any], want: Sequence[Any] = (), call: bool = False) -> tuple[list[Any], list[Any]]:
    """The results of a body without its marks, and the values of the variables in `want`.

    Args:
      closed: the body.
      ins: its arguments; those that it does not read may be None.
      want: variables of the body.
      call: whether to keep the body a function that is called.
    """
    jaxpr = strip(closed)
    extended = inner(jaxpr).replace(outvars=[*inner(jaxpr).outvars, *want], debug_info=unnamed(inner(jaxpr)))
    lean, needed = pe.dce_jaxpr(extended, [True] * len(extended.outvars))[:2]
    run = as_function(rewrap(jaxpr, lean))
    outs = (jax.jit(run) if call else run)(*(a for a, n in zip(ins, needed, strict=True) if n))
    return outs[: len(outs) - len(want)], outs[len(outs) - len(want) :]
