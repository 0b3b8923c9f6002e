"""Addresses: each boundary numbers what lies directly inside it, before any transformation has touched it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtap._active import Key
from jaxtap._backward import is_identity
from jaxtap._equations import Points
from jaxtap._gates import Gate, gate_of
from jaxtap._jaxprs import (
    WeakMemo,
    cond_p,
    function_source,
    inner,
    is_entered,
    label,
    map_subjaxprs,
    remat_p,
    scan_p,
    subjaxprs,
    while_p,
    with_eqns,
)
from jaxtap._mark import Path, has_marks, is_floating, is_gate, is_mark, is_point, own_marks

# Called on each loop equation that a walk meets, to mark it where that has not happened yet.
Marker = Callable[[Any], Any]

_adopted = WeakMemo()
_headed = WeakMemo()


def is_loop(eqn: Any) -> bool:
    """Whether an equation is a scan or a while."""
    return eqn.primitive is scan_p or eqn.primitive is while_p


def adopt(jaxpr: Any, head: Path, mark: Marker, keys: tuple[Key, ...], entered: bool = True) -> Any:
    """Number what lies directly inside `jaxpr`, mark the equations in it, and put `head` before every address.

    Args:
      jaxpr: a body, a branch, or what a call holds.
      head: address of the boundary that holds it.
      mark: marks a loop that was traced before the lens was open.
      keys: the lenses.
      entered: whether equations may be marked, since what holds `jaxpr` is entered when it is lowered.
    """

    def make() -> Any:
        points = Points(inner(jaxpr), head, keys if entered else ())
        eqns, number, forward = [], _Numbers(), _Forward()
        for eqn in inner(jaxpr).eqns:
            if any(True for _ in subjaxprs(eqn)):
                eqn = _adopt_eqn(eqn, forward.of(eqn, (*head, number.of(eqn))), mark, keys, entered)
            eqns += points.around(eqn)
        eqns += points.after()
        return with_eqns(inner(jaxpr), eqns)

    return _adopted.rewrap(jaxpr, (head, keys, entered), make)


class _Numbers:
    """Counts the boundaries of one jaxpr. All branches of a `cond` that was mapped to a selection are one."""

    def __init__(self) -> None:
        self._next = 0
        self._gate: Gate | None = None

    def of(self, eqn: Any) -> str:
        """The part of an address that stands for an equation."""
        gate, before = gate_of(eqn), self._gate
        self._gate = gate
        if gate is None or before is None or gate.bodies != before.bodies or gate.branch <= before.branch:
            self._next += 1
        return f"{gate.op if gate is not None else label(eqn)}[{self._next - 1}]"


class _Forward:
    """Remembers the addresses of loops, for the loops that their gradients run in."""

    def __init__(self) -> None:
        self._heads: dict[Any, Path] = {}

    def of(self, eqn: Any, here: Path) -> Path:
        """The address of an equation: that of the forward loop, if it runs its gradient."""
        bodies = list(subjaxprs(eqn))
        first = next((mark for body in bodies if (mark := first_mark(body)) is not None), None)
        if not is_loop(eqn) or first is None:
            return here
        if any(own_marks(body) for body in bodies):
            self._heads[first.params["path"][0]] = here
            return here
        return self._heads.get(first.params["path"][0], here)


def _adopt_eqn(eqn: Any, head: Path, mark: Marker, keys: tuple[Key, ...], entered: bool) -> Any:
    if is_loop(eqn):
        eqn = mark(eqn)
    if is_loop(eqn) or is_addressed(eqn):
        return map_subjaxprs(eqn, lambda _, sub: behead(sub, head))

    def into(name: str, sub: Any) -> Any:
        return adopt(sub, (*head, *branch(eqn, name)), mark, keys, entered and is_entered(eqn.primitive.name))

    return map_subjaxprs(eqn, into)


def is_addressed(eqn: Any) -> bool:
    """Whether the marks in a `cond`, a branch of one, or a checkpoint know it as the outermost boundary around them."""
    gate = gate_of(eqn)
    if gate is None and eqn.primitive is not cond_p and eqn.primitive is not remat_p:
        return False
    first = next((found for sub in subjaxprs(eqn) if (found := first_mark(sub)) is not None), None)
    return first is not None and first.params["path"][0].bodies == (gate.bodies if gate is not None else bodies(eqn))


def bodies(eqn: Any) -> tuple[str, ...]:
    """Where the functions in an equation were written."""
    return tuple(function_source(sub) for sub in subjaxprs(eqn))


def first_mark(jaxpr: Any) -> Any:
    """The first mark in a jaxpr that has an address, at any depth, or None."""
    for eqn in inner(jaxpr).eqns:
        if is_mark(eqn):
            if is_floating(eqn) or is_gate(eqn):
                continue
            return eqn
        for sub in subjaxprs(eqn):
            found = first_mark(sub)
            if found is not None:
                return found
    return None


def is_adopted(jaxpr: Any) -> bool:
    """Whether the marks in a jaxpr already know the boundary that holds it."""
    if any(is_point(eqn) and not is_floating(eqn) for eqn in inner(jaxpr).eqns):
        return True
    for eqn in inner(jaxpr).eqns:
        first = next((found for sub in subjaxprs(eqn) if (found := first_mark(sub)) is not None), None)
        if first is None:
            continue
        if is_loop(eqn):
            own = [mark for sub in subjaxprs(eqn) for mark in own_marks(sub)]
            return not own or len(own[0].params["path"]) > 1
        if eqn.primitive is cond_p or eqn.primitive is remat_p or gate_of(eqn) is not None:
            return not is_addressed(eqn)
        return any(map(is_adopted, subjaxprs(eqn)))
    return False


def branch(eqn: Any, parameter: str) -> tuple[str, ...]:
    """The extra part of an address inside a `cond`, such as `("b1",)`."""
    return (f"b{parameter[len('branches[') : -1]}",) if eqn.primitive.name == "cond" else ()


def behead(jaxpr: Any, head: Path) -> Any:
    """Put `head` in place of the first part of every address in `jaxpr`."""
    if not has_marks(jaxpr):
        return jaxpr

    def make() -> Any:
        eqns = []
        for eqn in inner(jaxpr).eqns:
            if is_gate(eqn):
                pass
            elif (is_mark(eqn) or is_identity(eqn)) and not is_floating(eqn):
                eqn = eqn.replace(params={**eqn.params, "path": (*head, *eqn.params["path"][1:])})
            else:
                eqn = map_subjaxprs(eqn, lambda _, sub: behead(sub, head))
            eqns.append(eqn)
        return with_eqns(inner(jaxpr), eqns)

    return _headed.rewrap(jaxpr, head, make)
