"""Everything between loops: a jaxpr is evaluated as it is, and each marked loop in it is realised."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from jaxtap._address import first_mark
from jaxtap._announce import announce, only_trips, sends
from jaxtap._around import Around
from jaxtap._detect import fires
from jaxtap._gates import behind
from jaxtap._hunt import hunters, report
from jaxtap._jaxprs import (
    CALLS,
    advance,
    consts,
    in_runs,
    inner,
    is_jaxpr,
    is_literal,
    jit_p,
    map_subjaxprs,
    remat_p,
    scan_counts,
    scan_p,
    subjaxprs,
)
from jaxtap._liveness import bare, live
from jaxtap._mark import has_marks, is_gate, is_mark, is_point, leaves_of, own_marks, strip
from jaxtap._seal import is_pure, is_tiny, unshared

# How a marked loop is realised, by its primitive: `(params, args, around) -> results`.
loop_rules: dict[Any, Callable[..., list[Any]]] = {}


def realise(primitive: Any, params: dict[str, Any], args: Sequence[Any], around: Around) -> list[Any]:
    """The results of a marked loop, with its crossings written out."""
    bodies = [value for value in params.values() if is_jaxpr(value)]
    looking = any([bool(hunters(own_marks(body))) for body in bodies])
    if around.hunt:
        return loop_rules[primitive](params, list(args), around) if looking else bare(primitive, params, args)
    if not any([sends(body) for body in bodies]) and not (looking and (around.twin or not around.steps)):
        return bare(primitive, params, args)
    # XLA takes a loop of one trip apart and fuses its step with what is around.
    once = primitive is scan_p and params["length"] == 1
    unrolled = primitive is scan_p and params["unroll"] != 1
    tiny = around.seals and not around.steps and all(map(is_tiny, bodies))

    def idle() -> bool:
        """Whether some state leads to no result, and is not computed without a lens. A copy has it."""
        return not all(live(primitive, params).carry)

    if not around.twin and all(map(is_pure, bodies)) and (unrolled or once or tiny or idle()):
        # Unrolled steps are fused into one another, and so, in a tiny loop, is anything. It stays as it is, and a
        # copy beside it sends the events.
        results, args = bare(primitive, params, args), unshared(args)
        copy = {**params, "unroll": 1} if unrolled else params
        apart = dataclasses.replace(around, twin=True)
        if all(map(only_trips, bodies)):

            def send() -> None:
                realise(primitive, copy, args, apart)

            lax.cond(fires(primitive, copy, args), send, lambda: None)
        else:
            returned = results[scan_counts(params)[1] :] if primitive is scan_p else []
            realise(primitive, copy, args, dataclasses.replace(apart, returned=returned))
        return results
    return loop_rules[primitive](params, list(args), around)


def walk(closed: Any, args: Sequence[Any], around: Around, want: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
    """Evaluate a jaxpr, realising the marked loops and points in it; also the values of the variables in `want`."""
    jaxpr = inner(closed)
    values = dict(zip(jaxpr.constvars, consts(closed), strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if is_literal(atom) else values[atom]

    for marked, eqns in runs(jaxpr.eqns):
        if marked and is_gate(eqns[0]):
            around = behind(eqns[0], [value(v) for v in leaves_of(eqns[0])], around)
        elif marked and is_mark(eqns[0]):
            if is_point(eqns[0]) and not around.hunt:
                announce(eqns[0].params, [value(v) for v in leaves_of(eqns[0])], around)
            elif around.hunt and eqns[0].params["site"].kind == "equations":
                report(eqns[0].params, [value(v) for v in leaves_of(eqns[0])], around)
        elif marked:
            (eqn,) = eqns
            outs = _enter(eqn, [value(v) for v in eqn.invars], around)
            values.update(zip(eqn.outvars, outs, strict=True))
        else:
            advance(jaxpr, eqns, values)
    return [value(v) for v in jaxpr.outvars], [value(v) for v in want]


def runs(eqns: Sequence[Any]) -> list[tuple[bool, list[Any]]]:
    """The equations in runs without any mark, and one by one where they mark a point or hold marks."""
    others = (eqn for eqn in eqns if not (is_mark(eqn) and eqn.params["site"].kind in ("carry", "output")))
    return in_runs(others, lambda eqn: is_mark(eqn) or any(map(has_marks, subjaxprs(eqn))))


def _enter(eqn: Any, args: list[Any], around: Around) -> Sequence[Any]:
    """Evaluate an equation that holds marked loops."""
    primitive, params = eqn.primitive, eqn.params
    if primitive in loop_rules:
        return realise(primitive, params, args, around)
    if primitive is jit_p and is_plain(params):
        return walk(params["jaxpr"], args, around)[0]
    if primitive.name in CALLS:
        (called,) = subjaxprs(eqn)
        return walk(called, args, around)[0]
    if primitive.name == "cond":
        branches = [lambda *ops, b=b: walk(b, ops, around)[0] for b in params["branches"]]
        return lax.switch(args[0], branches, *args[1:])
    if primitive is remat_p:
        if params["differentiated"] and params["prevent_cse"]:
            args = lax.optimization_barrier(args)
        return walk(params["jaxpr"], args, around)[0]
    # Not entered: it runs as it is without a lens, and the report names it.
    for key in first_mark(next(filter(has_marks, subjaxprs(eqn)))).params["lenses"]:
        if key.lens is not None:
            key.lens.passed_through(primitive.name)
    eqn = map_subjaxprs(eqn, lambda _, sub: strip(sub))
    values = {v: a for v, a in zip(eqn.invars, args, strict=True) if not is_literal(v)}
    advance(inner(next(subjaxprs(eqn))), [eqn], values)
    return [values.get(v) for v in eqn.outvars]


def is_plain(params: dict[str, Any]) -> bool:
    """Whether a nested `jit` asks for nothing: evaluating what it holds is the same."""
    shardings = (*params["in_shardings"], *params["out_shardings"])
    layouts = (*params["in_layouts"], *params["out_layouts"])
    plain = all(type(s).__name__ == "UnspecifiedValue" for s in shardings) and not any(map(bool, layouts))
    return plain and not params.get("compiler_options_kvs")
