"""Interception: while a lens is open, binding a loop puts a mark beside its state.

Only bound methods of four primitives are replaced, and only while a lens is open anywhere in the process;
no function of JAX is. Binding is where every way of writing a loop meets, and it comes before vmap and
differentiation, so a mark sees a loop as its author wrote it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from jax.core import Tracer
from jax.extend import core as jcore
from jax.extend import source_info_util

from jaxtap import _active
from jaxtap._address import adopt, is_adopted
from jaxtap._backward import identity_eqn, is_differentiable, passed_on
from jaxtap._guard import Guard
from jaxtap._isolate import readings
from jaxtap._jaxprs import (
    EFFECT,
    WeakMemo,
    arg_names,
    cond_p,
    function_source,
    inner,
    is_jaxpr,
    map_subjaxprs,
    remat_p,
    replace_params,
    scan_counts,
    scan_p,
    while_p,
    with_eqns,
)
from jaxtap._mark import Path, Root, Site, is_mark, mark_eqn, own_marks
from jaxtap._points import hooked
from jaxtap._provenance import in_lowering, is_discarded, is_recomputation
from jaxtap._pruned import Pruned, pruned
from jaxtap._sources import is_lowering_of_jax, is_of_jax, source_of_body

_guard = Guard()
_marked = WeakMemo()
_widened = WeakMemo()


# --- Marking a loop ------------------------------------------------------------------------------------------


class _Loop:
    """One loop about to be bound: which variables of its body are which leaves of the user's state."""

    def __init__(self, primitive: Any, params: dict[str, Any], taken: Pruned | None, source_info: Any) -> None:
        self.op = "scan" if primitive is scan_p else "while_loop"
        self.parameter = "jaxpr" if primitive is scan_p else "body_jaxpr"
        self.body = params[self.parameter]
        self.total = params["length"] if primitive is scan_p else None
        self.call_site = source_info_util.summarize(source_info)
        self.internal = is_of_jax(source_info)
        self.taken = taken
        jaxpr = inner(self.body)
        names = arg_names(self.body) or ("",) * len(jaxpr.invars)
        if primitive is scan_p:
            num_consts, num_carry = scan_counts(params)
        else:
            num_consts, num_carry = params["body_nconsts"], len(jaxpr.invars) - params["body_nconsts"]
        binders = list(zip(jaxpr.invars, names, strict=True))
        self.consts, self.carry = binders[:num_consts], binders[num_consts : num_consts + num_carry]
        self.xs = binders[num_consts + num_carry :]
        self.ys = list(jaxpr.outvars[num_carry:])

    def carry_leaves(self) -> list[tuple[Any, str]]:
        """Variable and name of each carry leaf, in the order of the user's pytree."""
        moved = self.taken.moved if self.taken else (False,) * len(self.carry)
        constant, kept = iter(self.consts), iter(self.carry)
        leaves = [next(constant if m else kept) for m in moved]
        return [(var, name or f"carry[{i}]") for i, (var, name) in enumerate(leaves)]

    def output_leaves(self) -> list[tuple[Any, str]]:
        """Variable and name of each output leaf, in the order of the user's pytree."""
        if self.taken is None or self.op != "scan":
            return [(var, f"ys[{i}]") for i, var in enumerate(self.ys)]
        kept, num_carry = iter(self.ys), len(self.carry)
        return [
            (next(kept) if f is None else self.xs[f - num_carry][0], name)
            for f, name in zip(self.taken.forwarded, self.taken.output_names, strict=True)
        ]

    def root(self) -> Root:
        """What this loop is known by until a recording numbers it."""
        names = tuple(name for _, name in self.carry_leaves())
        return Root(self.op.removesuffix("_loop"), self.call_site, (function_source(self.body),), names)

    def marks(self, keys: tuple[Any, ...], source_info: Any) -> tuple[list[Any], list[Any]]:
        """The equations to put before and after the body's own."""
        path, source = (self.root(),), source_of_body(self.body, self.call_site)
        witnesses = list(inner(self.body).invars)

        def mark(kind: str, leaves: list[tuple[Any, str]], treedef: Any) -> Any:
            names = tuple(name for _, name in leaves)
            site = Site(self.op, kind, source, names, self.total, treedef, internal=self.internal)
            return mark_eqn([*(var for var, _ in leaves), *witnesses], site, path, keys, source_info)

        taken = self.taken or Pruned(())
        before = [mark("carry", self.carry_leaves(), taken.carry_treedef)]
        wanted = self.op == "scan" and any(key.view.wants_outputs for key in keys)
        after = [mark("output", self.output_leaves(), taken.output_treedef)] if wanted else []
        return before, after

    def with_identities(self, jaxpr: Any, eqns: list[Any], keys: tuple[Any, ...], source_info: Any) -> Any:
        """The marked body, with the carry passing through identities whose transposes mark its cotangent."""
        path, names = (self.root(),), tuple(name for _, name in self.carry)
        source = source_of_body(self.body, self.call_site)
        site = Site(self.op, "backward", source, names, self.total, internal=self.internal)
        invars, outvars = list(jaxpr.invars), list(jaxpr.outvars)
        wanted = tuple(key for key in keys if key.view.backward is not None)
        if wanted:
            positions = list(range(len(names)))
            outvars = passed_on(eqns, outvars, positions, site, path, wanted, source_info)
        watching = tuple(key for key in keys if key.view.watches_cotangents)
        chosen = [(var, name) for var, name in self.carry if is_differentiable(var.aval.dtype)]
        if watching and chosen:
            # What the body calls its carry becomes what an identity makes of a new variable.
            site = dataclasses.replace(site, kind="cotangent", names=tuple(name for _, name in chosen))
            entry = identity_eqn([var for var, _ in chosen], site, path, watching, source_info)
            eqns.insert(0, entry.replace(invars=entry.outvars, outvars=entry.invars))
            new = dict(zip([var for var, _ in chosen], entry.outvars, strict=True))
            invars = [new.get(var, var) for var in invars]
        return with_eqns(jaxpr, eqns).replace(invars=invars, outvars=outvars)


def with_marks(
    primitive: Any, params: dict[str, Any], keys: tuple[Any, ...], source_info: Any, taken: Pruned | None = None
) -> dict[str, Any]:
    """The parameters of a loop with its body marked for some lenses."""
    parameter = "jaxpr" if primitive is scan_p else "body_jaxpr"
    body = params[parameter]
    own = own_marks(body)
    if own:
        missing = tuple(k for k in keys if k not in own[0].params["lenses"])
        return {**params, parameter: _widen(body, missing)} if missing else params
    if arg_names(body) is None or is_recomputation() or is_discarded() or is_lowering_of_jax(source_info):
        return params
    loop = _Loop(primitive, params, taken, source_info)
    root = loop.root()

    def mark_inside(eqn: Any) -> Any:
        changed = with_marks(eqn.primitive, eqn.params, keys, eqn.source_info)
        return eqn if changed is eqn.params else replace_params(eqn, changed)

    def make() -> Any:
        info = source_info_util.current()
        before, after = loop.marks(keys, info)
        numbered = inner(adopt(body, (root,), mark_inside, keys))
        eqns = [*before, *numbered.eqns, *after]
        if primitive is scan_p and any(key.view.backward is not None or key.view.watches_cotangents for key in keys):
            return loop.with_identities(numbered, eqns, keys, info)
        return with_eqns(numbered, eqns)

    new = {**params, parameter: _marked.rewrap(body, (keys, root, loop.total, taken), make)}
    if primitive is while_p:
        new["cond_jaxpr"] = adopt(params["cond_jaxpr"], (root, "cond"), mark_inside, keys)
    return new


def _widen(jaxpr: Any, keys: tuple[Any, ...]) -> Any:
    """Let more lenses see the marks that a jaxpr holds."""

    def make() -> Any:
        eqns = []
        for eqn in inner(jaxpr).eqns:
            if is_mark(eqn):
                lenses = (*eqn.params["lenses"], *(k for k in keys if k not in eqn.params["lenses"]))
                eqn = eqn.replace(params={**eqn.params, "lenses": lenses})
            else:
                eqn = map_subjaxprs(eqn, lambda _, sub: _widen(sub, keys))
            eqns.append(eqn)
        return with_eqns(inner(jaxpr), eqns)

    if EFFECT not in inner(jaxpr).effects:
        return jaxpr
    return _widened.rewrap(jaxpr, keys, make)


# --- Branches and checkpoints outside any loop ---------------------------------------------------------------


def with_addresses(op: str, params: dict[str, Any], keys: tuple[Any, ...], call_site: str) -> dict[str, Any]:
    """The parameters of a `cond` or a checkpoint, with the addresses of the loops in it continued."""
    found = [(name, value) for name, value in params.items() if is_jaxpr(value) or name == "branches"]
    jaxprs = [j for _, value in found for j in (value if isinstance(value, tuple) else (value,))]
    if any(map(is_adopted, jaxprs)) or is_recomputation():
        return params
    root = Root(op, call_site, tuple(map(function_source, jaxprs)))

    def mark_inside(eqn: Any) -> Any:
        changed = with_marks(eqn.primitive, eqn.params, keys, eqn.source_info)
        return eqn if changed is eqn.params else replace_params(eqn, changed)

    def into(jaxpr: Any, head: Path) -> Any:
        # One without names was made by differentiating or mapping another, whose equations have been marked.
        return adopt(jaxpr, head, mark_inside, keys, arg_names(jaxpr) is not None)

    new = dict(params)
    for name, value in found:
        if isinstance(value, tuple):
            new[name] = tuple(into(j, (root, f"b{i}")) for i, j in enumerate(value))
        else:
            new[name] = into(value, (root,))
    return new


# --- The hook ------------------------------------------------------------------------------------------------


def _hooked(primitive: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    op = {cond_p: "cond", remat_p: "remat"}.get(primitive)

    def bind(*args: Any, **params: Any) -> Any:
        keys = _active.active()
        if in_lowering() or _active.looks_away():
            return original(*args, **params)
        if not keys:
            for lens in _active.open_lenses():
                lens.loops_elsewhere += 1
            return original(*args, **params)
        try:
            source_info = source_info_util.current()
            if op is not None:
                params = with_addresses(op, params, keys, source_info_util.summarize(source_info))
            else:
                params = with_marks(primitive, params, keys, source_info, pruned(1))
                _note(primitive, args, params, keys)
        except Exception as error:  # noqa: BLE001 - a loop that cannot be marked runs unmarked
            _guard.failed("marking a loop", error)
        return original(*args, **params)

    return bind


def _note(primitive: Any, args: Sequence[Any], params: dict[str, Any], keys: tuple[Any, ...]) -> None:
    """Let a recording number an eager loop now, in the order of the program."""
    if any(isinstance(arg, Tracer) for arg in args):
        return
    own = own_marks(params["jaxpr" if primitive is scan_p else "body_jaxpr"])
    for key in keys:
        if own and key.lens is not None:
            key.lens.numbering.text(own[0].params["path"])


_ABSENT = object()


class _Installation:
    """The hooks on the four primitives, and on all where single equations are tapped, while anyone needs them."""

    def __init__(self) -> None:
        self._users = self._tappers = 0
        self._lock = threading.Lock()
        self._before: dict[Any, Any] = {}
        self._bind: Any = None

    def acquire(self, taps: bool = False) -> None:
        """Put the hooks in place, if no one has yet."""
        with self._lock:
            self._users += 1
            self._tappers += taps
            if self._tappers == 1 and self._bind is None:
                self._bind = jcore.Primitive.bind
                jcore.Primitive.bind = hooked(self._bind)
            if self._users == 1:
                for primitive in (scan_p, while_p, cond_p, remat_p):
                    self._before[primitive] = vars(primitive).get("bind", _ABSENT)
                    primitive.bind = _hooked(primitive, primitive.bind)

    def release(self, taps: bool = False, all_of_them: bool = False) -> None:
        """Take the hooks away, if no one else needs them."""
        with self._lock:
            self._users = 0 if all_of_them else max(0, self._users - 1)
            self._tappers = 0 if all_of_them else max(0, self._tappers - taps)
            if self._tappers == 0 and self._bind is not None:
                jcore.Primitive.bind, self._bind = self._bind, None
            if self._users == 0:
                for primitive, before in self._before.items():
                    if before is _ABSENT:
                        vars(primitive).pop("bind", None)
                    else:
                        primitive.bind = before
                self._before.clear()
                readings.stop()


hooks = _Installation()
