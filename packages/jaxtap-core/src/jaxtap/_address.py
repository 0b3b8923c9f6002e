"""Addresses: each boundary numbers what lies directly inside it, before any transformation has touched it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtap._jaxprs import WeakMemo, inner, label, map_subjaxprs, rewrap, scan_p, subjaxprs, while_p, with_eqns
from jaxtap._mark import Path, has_marks, is_mark

# Called on each loop equation that a walk meets, to mark it where that has not happened yet.
Marker = Callable[[Any], Any]

_adopted = WeakMemo()
_headed = WeakMemo()


def is_loop(eqn: Any) -> bool:
    """Whether an equation is a scan or a while."""
    return eqn.primitive is scan_p or eqn.primitive is while_p


def adopt(jaxpr: Any, head: Path, mark: Marker, key: Any) -> Any:
    """Number the boundaries directly inside `jaxpr`, and put `head` before every address in it.

    Args:
      jaxpr: a body, a branch, or what a call holds.
      head: address of the boundary that holds it.
      mark: marks a loop that was traced before the lens was open.
      key: what the result depends on besides `jaxpr` and `head`.
    """

    def make() -> Any:
        eqns, number = [], 0
        for eqn in inner(jaxpr).eqns:
            if any(True for _ in subjaxprs(eqn)):
                eqn = _adopt_eqn(eqn, (*head, f"{label(eqn)}[{number}]"), mark, key)
                number += 1
            eqns.append(eqn)
        return with_eqns(inner(jaxpr), eqns)

    return rewrap(jaxpr, _adopted.get(inner(jaxpr), (head, key), make))


def _adopt_eqn(eqn: Any, head: Path, mark: Marker, key: Any) -> Any:
    if is_loop(eqn):
        return map_subjaxprs(mark(eqn), lambda _, sub: behead(sub, head))

    def into(name: str, sub: Any) -> Any:
        return adopt(sub, (*head, *branch(eqn, name)), mark, key)

    return map_subjaxprs(eqn, into)


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
            if is_mark(eqn):
                eqn = eqn.replace(params={**eqn.params, "path": (*head, *eqn.params["path"][1:])})
            else:
                eqn = map_subjaxprs(eqn, lambda _, sub: behead(sub, head))
            eqns.append(eqn)
        return with_eqns(inner(jaxpr), eqns)

    return rewrap(jaxpr, _headed.get(inner(jaxpr), head, make))
