"""Which steps may hold their inner loops' events: those whose events can all wait until the step has ended."""

from __future__ import annotations

from typing import Any

from jaxtap._announce import has_listeners, has_wires, sends
from jaxtap._hunt import hunts_inside
from jaxtap._jaxprs import inner, scan_p, subjaxprs
from jaxtap._mark import own_marks
from jaxtap._payload import emitters
from jaxtap._seal import is_tiny

# How many steps the inner loops of one step may make in all: the host does not hear of it for so long.
MOST_TRIPS = 256


def all_waits(closed: Any) -> bool:
    """Whether all that is sent from within a step comes from loops of few steps, and no tripwire looks there.

    Tiny loops do not count: XLA unrolls those, and fuses their steps with one another.
    """
    if has_listeners(closed) or hunts_inside(closed):
        return False
    return (
        not any(has_wires(sub) for eqn in inner(closed).eqns for sub in subjaxprs(eqn)) and _trips(closed) is not None
    )


def _trips(closed: Any) -> int | None:
    """How many steps the inner loops that send make; None where that is too much, or not known."""
    count = 0
    for eqn in inner(closed).eqns:
        for sub in filter(sends, subjaxprs(eqn)):
            is_step = eqn.primitive is scan_p
            may = all(map(_may_wait, emitters(own_marks(sub)))) and not (is_step and is_tiny(sub))
            within = _trips(sub) if may else None
            if within is None or (eqn.primitive.name == "while" and sends(sub)):
                return None
            count += (within + 1) * eqn.params["length"] if is_step else within
    return count if count <= MOST_TRIPS else None


def _may_wait(emitter: Any) -> bool:
    return emitter.view.last is None and emitter.view.buffer != 1
