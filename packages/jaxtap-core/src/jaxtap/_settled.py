"""Marked values that a step hands on whole: read after the step, as its state is, in place of in a copy of the step."""

from __future__ import annotations

from typing import Any

from jaxtap._announce import listeners
from jaxtap._jaxprs import inner, is_literal, rewrap, with_eqns
from jaxtap._mark import is_point, leaves_of
from jaxtap._slices import turned


def settling(closed: Any, num_carry: int) -> tuple[Any, list[Any]]:
    """The body without the marks that can be read after the step, and those marks.

    They stand beside values that the step is given, its next state, or what it returns.

    Args:
      closed: the body.
      num_carry: how many of its results are its next state.
    """
    body = inner(closed)
    outs = {v: None for v in body.outvars if not is_literal(v)}
    returned = {v: None for v in body.outvars[num_carry:] if not is_literal(v)}
    kept = {*body.constvars, *body.invars, *outs}

    def settles(mark: Any) -> bool:
        there = all(is_literal(v) or v in kept or turned(body, v, returned) for v in leaves_of(mark))
        return there and bool(listeners(mark.params))

    marks = [eqn for eqn in body.eqns if is_point(eqn) and settles(eqn)]
    if not marks:
        return closed, []
    eqns = [eqn for eqn in body.eqns if not any(eqn is mark for mark in marks)]
    return rewrap(closed, with_eqns(body, eqns)), marks
