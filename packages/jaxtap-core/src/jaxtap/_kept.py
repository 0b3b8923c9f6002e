"""All that a program sends, kept until it ends: the buffers are results of the program, and nothing crosses."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxtap._buffers import Buffers, State, trip_count
from jaxtap._chunks import Chunk
from jaxtap._emit import Entry, HuntEntry, emit_p
from jaxtap._flush import Slot, chunk
from jaxtap._jaxprs import cond_p, inner, subjaxprs, while_p


class Kept(Buffers):
    """The buffers of a whole program.

    Args:
      program: what it does and sends, a jaxpr.
      last: keep the newest this many rows of each loop and point; None keeps all.

    Raises:
      ValueError: if it is not known how many rows there are, or if something asks for the host.
    """

    def __init__(self, program: Any, last: int | None) -> None:
        found = {id(entry): (entry, avals) for entry, avals in _emissions(program)}
        counts = _counts(program)
        slots: dict[int, Slot] = {}
        for number, (key, (entry, avals)) in enumerate(found.items()):
            _check(entry, counts[key], last)
            rows = counts[key] if last is None else min(counts[key], last)
            slots[key] = Slot(entry, avals, number, max(1, int(rows)))
        super().__init__(slots)

    def _place(self, slot: Slot, used: Any) -> Any:
        return used % slot.rows

    def loop(self, eqn: Any, args: list[Any], state: State, outermost: bool = False) -> tuple[Sequence[Any], State]:
        """The results of a loop, and the buffers after it."""
        goes_on, trip, carry = self._trip(eqn, args)
        flat = lax.while_loop(goes_on, trip, [*carry, *state.flat()])
        return flat[: len(carry)], self._state(flat[len(carry) :])


def _check(entry: Any, count: float, last: int | None) -> None:
    if isinstance(entry, HuntEntry):
        raise ValueError(
            "collect cannot look for the equation that makes the first value that is not finite: watch_nan() without "
            "names needs the host. Name primitives, as in watch_nan('log'), or use jaxtap.record."
        )
    if count == math.inf and last is None:
        raise ValueError(
            f"{entry.site.source} lies in a while loop whose number of steps is not known before it runs: pass last=n "
            "to keep the newest n events of each loop, or use jaxtap.record."
        )


def _emissions(closed: Any) -> list[tuple[Any, Sequence[Any]]]:
    """What a program sends: host ends, with the types of their operands, in program order."""
    found: list[tuple[Any, Sequence[Any]]] = []
    for eqn in inner(closed).eqns:
        if eqn.primitive is emit_p:
            found.append((eqn.params["entry"], [v.aval for v in eqn.invars]))
        found += [each for sub in subjaxprs(eqn) for each in _emissions(sub)]
    return found


def _counts(closed: Any) -> dict[int, float]:
    """How many rows of each host end a program makes at most."""
    found: dict[int, float] = collections.defaultdict(float)
    for eqn in inner(closed).eqns:
        if eqn.primitive is emit_p:
            new = {id(eqn.params["entry"]): 1.0}
        elif eqn.primitive is while_p:
            new = _of_loop(eqn)
        else:
            new: dict[int, float] = {}
            for within in map(_counts, subjaxprs(eqn)):
                for key, count in within.items():
                    new[key] = max(count, new.get(key, 0)) if eqn.primitive is cond_p else count + new.get(key, 0)
        for key, count in new.items():
            found[key] += count
    return found


def _of_loop(eqn: Any) -> dict[int, float]:
    body, trips = eqn.params["body_jaxpr"], trip_count(eqn)
    trips = math.inf if trips is None else trips
    own = _own(body)
    told = {entry.loop for entry in own.values() if isinstance(entry, Entry) and entry.parts}

    def times(key: int) -> float:
        entry = own.get(key)
        if entry is None or isinstance(entry, HuntEntry):
            return trips
        if isinstance(entry, Entry) and not entry.parts:
            # It only says that a loop has ended: this one, once, or one within that has made no step.
            return 1 if entry.loop in told else trips
        return math.ceil(trips / entry.sample_every) if trips < math.inf else trips

    return {key: count * times(key) for key, count in _counts(body).items()}


def _own(closed: Any) -> dict[int, Any]:
    """The host ends that a loop sends to itself, not a loop within, given its body."""
    found: dict[int, Any] = {}
    for eqn in inner(closed).eqns:
        if eqn.primitive is emit_p:
            found[id(eqn.params["entry"])] = eqn.params["entry"]
        elif eqn.primitive is not while_p:
            for sub in subjaxprs(eqn):
                found |= _own(sub)
    return found


def chunks(
    slots: Sequence[Slot], used: Sequence[Any], rings: Sequence[Sequence[np.ndarray]]
) -> tuple[list[Chunk], int]:
    """What buffers hold, and how many rows they no longer hold."""
    found: list[Chunk] = []
    lost = 0
    for slot, count, own in zip(slots, map(int, used), rings, strict=True):
        if count:
            first = count % slot.rows if count > slot.rows else 0
            turned = [np.roll(ring, -first, axis=0) for ring in own]
            found.append(chunk(slot.entry, slot.unpacked(turned, min(count, slot.rows))))
            lost += max(0, count - slot.rows)
    return found, lost
