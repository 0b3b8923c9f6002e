"""The mark: a primitive without outputs that stands beside the values to be seen and goes where they go."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax.extend import core as jcore
from jax.interpreters import ad, batching
from jax.interpreters import partial_eval as pe

from jaxtap._jaxprs import (
    EFFECT,
    WeakMemo,
    inner,
    is_jaxpr,
    map_subjaxprs,
    scan_p,
    subjaxprs,
    while_p,
    with_eqns,
)

mark_p = jcore.Primitive("jaxtap_mark")
mark_p.multiple_results = True


@dataclasses.dataclass(frozen=True)
class Root:
    """An outermost boundary whose number is not fixed yet: each recording numbers those it meets from 0.

    Attributes:
      op: its name in an address, such as `"scan"`.
      call_site: file and line of the user's call.
      bodies: file and line of each body function.
      names: names of the leaves, which tell apart two loops made by one helper function.
      point: whether it stands for a single equation or a marked value. Those are counted by name.
    """

    op: str
    call_site: str
    bodies: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    point: bool = False


# What a mark may stand for besides the state of a loop and all equations of a jaxpr.
POINTS = ("primitive", "mark", "backward", "cotangent")

Path = tuple["Root | str", ...]


@dataclasses.dataclass(frozen=True)
class Made:
    """An equation that makes floating-point values, among the values that a mark stands beside.

    Attributes:
      primitive: its primitive.
      number: its number among the equations of that primitive.
      source: the line that made it.
      made: positions of its outputs.
      used: positions of its operands.
      finite: whether the constants written into it are finite.
      looked_into: whether the equations inside it are marked themselves.
    """

    primitive: str
    number: int
    source: str
    made: tuple[int, ...]
    used: tuple[int, ...]
    finite: bool
    looked_into: bool


@dataclasses.dataclass(frozen=True)
class Site:
    """What is known of a loop, an equation or a marked value where it was written.

    Attributes:
      op: `"scan"` or `"while_loop"`, the name of a primitive, or the name that code has given to a value.
      kind: `"carry"` or `"output"` of a loop, `"primitive"` or `"mark"` for a single point, `"backward"` for the
        cotangent of a carry after a step or of a marked value, `"cotangent"` for that of a carry before it,
        `"equations"` for all the equations of a jaxpr.
      source: `"file.py:42 (function)"` of the body.
      names: name of each leaf, in the order of the user's pytree.
      total: trip count, or None.
      treedef: structure of the leaves, or None where it is not known.
      equations: of a mark beside equations, those equations.
      internal: whether it is a loop of JAX's own library, as in `jax.random.poisson`.
    """

    op: str
    kind: str
    source: str
    names: tuple[str, ...]
    total: int | None
    treedef: Any = None
    equations: tuple[Made, ...] = ()
    internal: bool = False


def mark_eqn(operands: list[Any], site: Site, path: Path, lenses: tuple[Any, ...], source_info: Any) -> Any:
    """An equation marking `operands`: the leaves of `site`, then values that only witness which axes are mapped."""
    params = {"site": site, "path": path, "lenses": lenses, "layers": ()}
    return jcore.new_jaxpr_eqn(operands, [], mark_p, params, {EFFECT}, source_info)


def is_mark(eqn: Any) -> bool:
    """Whether an equation is a mark."""
    return eqn.primitive is mark_p


def leaves_of(mark: Any) -> list[Any]:
    """The operands of a mark that are leaves of the user's state, without the witnesses."""
    return list(mark.invars[: len(mark.params["site"].names)])


def is_output(mark: Any) -> bool:
    """Whether a mark stands for what a scan step returns."""
    return mark.params["site"].kind == "output"


def is_gate(eqn: Any) -> bool:
    """Whether an equation marks which lanes run what comes after it in its jaxpr."""
    return is_mark(eqn) and eqn.params["site"].kind == "gate"


def is_point(eqn: Any) -> bool:
    """Whether an equation marks a single value, not the state of a loop."""
    return is_mark(eqn) and eqn.params["site"].kind in POINTS


def is_floating(eqn: Any) -> bool:
    """Whether an equation marks a value whose address does not say yet what it lies in."""
    path = eqn.params.get("path", ())
    return len(path) == 1 and isinstance(path[0], Root) and path[0].point


def own_marks(jaxpr: Any) -> list[Any]:
    """The marks that belong to the loop whose body is `jaxpr`."""
    return [eqn for eqn in inner(jaxpr).eqns if is_mark(eqn) and eqn.params["site"].kind in ("carry", "output")]


_has_marks = WeakMemo()


def has_marks(jaxpr: Any) -> bool:
    """Whether a jaxpr holds a mark, at any depth."""

    def look() -> bool:
        return any(is_mark(e) or any(map(has_marks, subjaxprs(e))) for e in inner(jaxpr).eqns)

    return _has_marks.get(inner(jaxpr), None, look)


_has_points = WeakMemo()


def has_points(jaxpr: Any) -> bool:
    """Whether a jaxpr marks a single equation or value, at any depth but within no loop."""

    def look() -> bool:
        eqns = inner(jaxpr).eqns
        outside = (e for e in eqns if e.primitive is not while_p and e.primitive is not scan_p)
        return any(is_point(e) or any(map(has_points, subjaxprs(e))) for e in outside)

    return _has_points.get(inner(jaxpr), None, look)


def is_backward(body: Any) -> bool:
    """Whether a body is a step of the gradient pass of a loop."""
    for eqn in inner(body).eqns:
        if is_mark(eqn) and eqn.params["site"].op == "scan" and eqn.params["site"].kind in ("backward", "cotangent"):
            return True
        inside = () if eqn.primitive is while_p or eqn.primitive is scan_p else subjaxprs(eqn)
        if any(map(is_backward, inside)):
            return True
    return False


_stripped = WeakMemo()


def strip(jaxpr: Any) -> Any:
    """The jaxpr without its marks, at any depth."""
    return _strip(jaxpr, False) if has_marks(jaxpr) else jaxpr


def without_points(jaxpr: Any) -> Any:
    """The jaxpr without marks of single equations and values, at any depth but within no loop."""
    return _strip(jaxpr, True) if has_points(jaxpr) else jaxpr


def _strip(jaxpr: Any, points_only: bool) -> Any:
    again = without_points if points_only else strip

    def make() -> Any:
        taken = is_point if points_only else is_mark
        eqns = [map_subjaxprs(e, lambda _, sub: again(sub)) for e in inner(jaxpr).eqns if not taken(e)]
        return with_eqns(inner(jaxpr), eqns)

    return _stripped.rewrap(jaxpr, points_only, make)


@mark_p.def_effectful_abstract_eval
def _abstract_eval(*_: Any, **__: Any) -> tuple[list[Any], set[Any]]:
    return [], {EFFECT}


def layer_of(args: Any, dims: Any) -> tuple[int, tuple[int | None, ...]]:
    """What a mark notes of a vmap: the size of the axis, and where each operand has it, None if nowhere."""
    sizes = (a.shape[d] for a, d in zip(args, dims, strict=True) if isinstance(d, int))
    return next(sizes), tuple(d if isinstance(d, int) else None for d in dims)


def _batch(args: Any, dims: Any, *, layers: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    """Leave the operands as they are and note the new axis, so that they still are the loop's own variables."""
    mark_p.bind(*args, layers=(*layers, layer_of(args, dims)), **params)
    return [], []


def _jvp(primals: Any, _: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    mark_p.bind(*primals, **params)
    return [], []


def _partial_eval_custom(_: Any, unknown: Any, instantiated: Any, eqn: Any) -> Any:
    """Under checkpoint, announce a step where it is first computed and not again where it is recomputed."""
    if any(unknown):
        # Part of what is seen is known only later: there it is announced.
        missing = [v for v, inst in zip(eqn.invars, instantiated, strict=True) if not inst]
        return None, eqn, [], [], missing
    return eqn, None, [], [], []


class _Staging:
    """A trace that stages a `while_loop` without its marks, for the copy that computes its primal again."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def default_process_primitive(self, primitive: Any, tracers: Any, params: dict[str, Any], *rest: Any) -> Any:
        """Stage the primitive as the trace does, silently."""
        return self._trace.default_process_primitive(primitive, tracers, quiet(params), *rest)


def quiet(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an equation with all marks taken out."""
    return {name: strip(value) if is_jaxpr(value) else value for name, value in params.items()}


def _is_announced_first(params: dict[str, Any], unknown: list[bool]) -> bool:
    """Whether the part of a `while_loop` that partial evaluation runs at once holds its marks."""
    body = inner(params["body_jaxpr"])
    late = {v for v, u in zip(body.invars, unknown[params["cond_nconsts"] :], strict=True) if u}
    return any(unknown) and not any(
        v in late for mark in own_marks(body) for v in mark.invars if isinstance(v, jcore.Var)
    )


def _once_in_linearize(rule: Any) -> Any:
    """Partial evaluation runs the known part of a `while_loop` and stages all of it again: announce the first."""

    def partial_eval(trace: Any, *tracers: Any, **params: Any) -> Any:
        unknown = [not t.is_known() for t in tracers]
        if has_marks(params["body_jaxpr"]) and _is_announced_first(params, unknown):
            trace = _Staging(trace)
        return rule(trace, *tracers, **params)

    return partial_eval


def _once_in_checkpoint(rule: Any) -> Any:
    """As above, for partial evaluation of the equations under a checkpoint."""

    def partial_eval(saveable: Any, unknown: Any, instantiated: Any, eqn: Any) -> Any:
        known, staged, *rest = rule(saveable, unknown, instantiated, eqn)
        if known is not None and staged is not None and any(map(has_marks, subjaxprs(known))):
            staged = map_subjaxprs(staged, lambda _, sub: strip(sub))
        return known, staged, *rest

    return partial_eval


pe.custom_partial_eval_rules[while_p] = _once_in_linearize(pe.custom_partial_eval_rules[while_p])
pe.partial_eval_jaxpr_custom_rules[while_p] = _once_in_checkpoint(pe.partial_eval_jaxpr_custom_rules[while_p])
batching.primitive_batchers[mark_p] = _batch
ad.primitive_jvps[mark_p] = _jvp
ad.primitive_transposes[mark_p] = lambda _, *args, **__: [None] * len(args)
pe.partial_eval_jaxpr_custom_rules[mark_p] = _partial_eval_custom
