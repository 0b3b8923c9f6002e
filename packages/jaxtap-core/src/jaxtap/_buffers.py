"""Gathering what a loop sends: rows in buffers that the loop carries, and one crossing for many of them.

What a realised loop sends stands in its program as emissions, each of them a crossing. Here that program is written
out once more: an emission becomes a row in a buffer, the buffers are threaded through every loop and branch on the
way, and a loop runs in rounds, as many steps as the host has asked for and as there is room, then a flush. A round
holds no host call, and so XLA compiles it as tightly as it compiles the program's own loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._emit import emit_p
from jaxtap._flush import MOST_ROWS, Flush, Slot, fits, flush_p
from jaxtap._inside import MOST_TRIPS
from jaxtap._jaxprs import (
    CALLS,
    advance,
    as_function,
    cond_p,
    consts,
    in_runs,
    inner,
    is_literal,
    jit_p,
    subjaxprs,
    while_p,
)


@dataclasses.dataclass
class State:
    """What the loops of a program carry.

    Attributes:
      flushes: how many flushes there were.
      trips: how many trips loops have made since the last one.
      limit: after how many trips the host wants to hear.
      put: how many rows have been put since the last flush, which is the order that they have.
      used: of each buffer, how many rows are in use.
      rings: of each buffer, an array for each dtype.
    """

    flushes: Any
    trips: Any
    limit: Any
    put: Any
    used: list[Any]
    rings: list[list[Any]]

    def flat(self) -> list[Any]:
        """All arrays."""
        head = [self.flushes, self.trips, self.limit, self.put]
        return [*head, *self.used, *(ring for rings in self.rings for ring in rings)]

    def after_trip(self) -> State:
        """The same, a trip later."""
        return dataclasses.replace(self, trips=self.trips + 1)


class Buffers:
    """The buffers of one outermost loop, and the program in which rows are put into them.

    Args:
      slots: the buffers, by the identity of their host ends.
    """

    def __init__(self, slots: dict[int, Slot]) -> None:
        self.slots = slots
        self._list = list(slots.values())
        self._flush = Flush(self._list)

    @classmethod
    def of_loop(cls, loop: Any) -> Buffers:
        """Those of an outermost loop, given its equation."""
        found = {id(entry): (entry, avals) for entry, avals in _buffered(loop)}
        slots = {key: Slot(entry, avals, number) for number, (key, (entry, avals)) in enumerate(found.items())}
        # Where it is known how often an inner loop goes round, it has as much more room.
        weights = {key: _trips_within(loop, key) * slot.row_bytes for key, slot in slots.items()}
        budget = next(iter(found.values()))[0].key.view.buffer_bytes
        for key, slot in slots.items():
            share = budget * weights[key] // sum(weights.values())
            slot.rows = max(1, min(MOST_ROWS, share // slot.row_bytes))
        return cls(slots)

    def empty(self) -> State:
        """Buffers without a row; the host wants to hear of the first step at once."""
        zeros = [[jnp.zeros((slot.rows, width), dtype) for dtype, width in slot.columns] for slot in self._list]
        none = jnp.int32(0)
        return State(none, none, jnp.int32(self._flush.first), none, [none] * len(self._list), zeros)

    def _state(self, flat: Sequence[Any]) -> State:
        count = len(self._list)
        flushes, trips, limit, put, *rest = flat
        rings = iter(rest[count:])
        return State(flushes, trips, limit, put, rest[:count], [[next(rings) for _ in s.columns] for s in self._list])

    # --- What is done to them --------------------------------------------------------------------------------

    def _put(self, state: State, slot: Slot, operands: Sequence[Any]) -> State:
        at = slot.number
        rows = slot.packed([state.put, *operands])
        start = self._place(slot, state.used[at])
        rings = list(state.rings)
        rings[at] = [
            lax.dynamic_update_slice(ring, row[None], (start, jnp.int32(0)), allow_negative_indices=False)
            for ring, row in zip(rings[at], rows, strict=True)
        ]
        used = list(state.used)
        used[at] = state.used[at] + 1
        return dataclasses.replace(state, put=state.put + 1, used=used, rings=rings)

    def _place(self, slot: Slot, used: Any) -> Any:
        """Where the next row goes."""
        return used

    def _flushed(self, state: State) -> State:
        (limit,) = flush_p.bind(*state.flat(), flush=self._flush)
        none = jnp.int32(0)
        return State(state.flushes + 1, none, limit, none, [none] * len(self._list), state.rings)

    def _has_room(self, state: State, needs: dict[int, float]) -> Any:
        """Whether rows may be put for one more trip of a loop."""
        room = state.trips < state.limit
        for key, count in needs.items():
            slot = self.slots[key]
            room = room & (state.used[slot.number] <= slot.rows - int(count))
        return room

    # --- The program, with the buffers threaded through ----------------------------------------------------------

    def evaluate(self, closed: Any, args: Sequence[Any], state: State) -> tuple[list[Any], State]:
        """The results of a jaxpr, and the buffers after it."""
        jaxpr = inner(closed)
        values = dict(zip(jaxpr.constvars, consts(closed), strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

        def value(atom: Any) -> Any:
            return atom.val if is_literal(atom) else values[atom]

        for eqns_send, eqns in in_runs(jaxpr.eqns, sends):
            if not eqns_send:
                advance(jaxpr, eqns, values)
                continue
            (eqn,) = eqns
            outs, state = self._equation(eqn, [value(v) for v in eqn.invars], state)
            values.update(zip(eqn.outvars, outs, strict=True))
        return [value(v) for v in jaxpr.outvars], state

    def _equation(self, eqn: Any, args: list[Any], state: State) -> tuple[Sequence[Any], State]:
        if eqn.primitive is emit_p:
            return [], self._emit(eqn, args, state)
        if eqn.primitive is while_p:
            return self.loop(eqn, args, state)
        if eqn.primitive is cond_p:
            return self._branch(eqn, args, state)
        if eqn.primitive is jit_p or eqn.primitive.name in CALLS:
            (called,) = subjaxprs(eqn)
            return self.evaluate(called, args, state)
        # What sends from within anything else crosses at once.
        return eqn.primitive.bind(*args, **eqn.params), state

    def _emit(self, eqn: Any, args: list[Any], state: State) -> State:
        entry = eqn.params["entry"]
        slot = self.slots.get(id(entry))
        if slot is not None:
            return self._put(state, slot, args)
        # What led up to it comes first: its step depends on what the host says, never negative, as XLA cannot know.
        state = self._flushed(state)
        step, *rest = args
        emit_p.bind(lax.select_n(state.limit < 0, step, state.limit), *rest, entry=entry)
        return state

    def _branch(self, eqn: Any, args: list[Any], state: State) -> tuple[Sequence[Any], State]:
        def taken(branch: Any) -> Callable[..., list[Any]]:
            def run(flat: list[Any], *operands: Any) -> list[Any]:
                outs, after = self.evaluate(branch, operands, self._state(flat))
                return [*outs, *after.flat()]

            return run

        outs = lax.switch(args[0], [taken(branch) for branch in eqn.params["branches"]], state.flat(), *args[1:])
        return outs[: len(eqn.outvars)], self._state(outs[len(eqn.outvars) :])

    def loop(self, eqn: Any, args: list[Any], state: State, outermost: bool = False) -> tuple[Sequence[Any], State]:
        """The results of a loop, run in rounds, and the buffers after it."""
        goes_on, trip, carry = self._trip(eqn, args)
        count, needs = len(carry), self._needs(eqn.params["body_jaxpr"])

        def full(flat: list[Any]) -> Any:
            return ~self._has_room(self._state(flat[count:]), needs)

        def flush(flat: list[Any]) -> list[Any]:
            return [*flat[:count], *self._flushed(self._state(flat[count:])).flat()]

        def round_of_trips(flat: list[Any]) -> list[Any]:
            flat = lax.while_loop(lambda s: goes_on(s) & ~full(s), trip, flat)
            return flush(flat) if outermost else lax.cond(full(flat), flush, lambda s: s, flat)

        flat = [*carry, *state.flat()]
        if not outermost and self._trips(eqn) is not None:
            flat = lax.while_loop(goes_on, trip, flat)
        else:
            flat = lax.while_loop(goes_on, round_of_trips, flat)
        return flat[:count], self._state(flat[count:])

    def _trip(self, eqn: Any, args: list[Any]) -> tuple[Callable[..., Any], Callable[..., list[Any]], list[Any]]:
        """A loop's condition and body, over its state and the buffers, and its state at first."""
        num_cond, num_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        asked, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        cond_consts, body_consts = args[:num_cond], args[num_cond : num_cond + num_body]
        carry = args[num_cond + num_body :]
        count, is_step = len(carry), trip_count(eqn) == 1

        def goes_on(flat: list[Any]) -> Any:
            return as_function(asked)(*cond_consts, *flat[:count])[0]

        def trip(flat: list[Any]) -> list[Any]:
            outs, after = self.evaluate(body, [*body_consts, *flat[:count]], self._state(flat[count:]))
            return [*outs, *(after if is_step else after.after_trip()).flat()]

        return goes_on, trip, carry

    # --- How many rows are put ---------------------------------------------------------------------------------

    def _trips(self, eqn: Any) -> int | None:
        """Trip count of a nested loop whose rows all fit, so that the loop around it can make room for them."""
        body, trips = eqn.params["body_jaxpr"], trip_count(eqn)
        if trips is None or trips > MOST_TRIPS or _crosses(body, self.slots):
            return None
        needs = self._needs(body)
        fits = all(count * trips <= self.slots[key].rows for key, count in needs.items())
        return trips if fits and not self._flushes(body) else None

    def _flushes(self, closed: Any) -> bool:
        """Whether a loop within a jaxpr makes its own room."""
        for eqn in inner(closed).eqns:
            if eqn.primitive is while_p:
                if sends(eqn) and self._trips(eqn) is None:
                    return True
            elif any(map(self._flushes, subjaxprs(eqn))):
                return True
        return False

    def _needs(self, closed: Any) -> dict[int, float]:
        """How many rows of each buffer one evaluation of a jaxpr puts at most, where its loops do not flush."""
        found: dict[int, float] = {}
        for eqn in inner(closed).eqns:
            if eqn.primitive is emit_p:
                new = {id(eqn.params["entry"]): 1.0}
            elif eqn.primitive is while_p and sends(eqn):
                trips = self._trips(eqn)
                within = {} if trips is None else self._needs(eqn.params["body_jaxpr"])
                new = {key: count * (trips or 0) for key, count in within.items()}
            else:
                new = {}
                for sub in subjaxprs(eqn):
                    new |= {k: max(n, new.get(k, 0)) for k, n in self._needs(sub).items()}
            for key, count in new.items():
                if key in self.slots:
                    found[key] = found.get(key, 0) + count
        return found


# --- What a program sends ------------------------------------------------------------------------------------


def sends(eqn: Any) -> bool:
    """Whether an equation crosses to the host, or holds one that does."""
    return eqn.primitive is emit_p or any(sends(each) for sub in subjaxprs(eqn) for each in inner(sub).eqns)


def calls_host(eqn: Any) -> bool:
    """Whether an equation calls the host for anything but to send events, or holds one that does."""
    own = eqn.primitive.name.endswith("callback") or eqn.primitive.name in ("debug_print", "infeed", "outfeed")
    return own or any(calls_host(each) for sub in subjaxprs(eqn) for each in inner(sub).eqns)


def _buffered(eqn: Any) -> list[tuple[Any, Sequence[Any]]]:
    """What an equation sends that can wait: host ends, with the types of their operands."""
    if eqn.primitive is emit_p:
        entry, avals = eqn.params["entry"], [v.aval for v in eqn.invars]
        return [(entry, avals)] if fits(entry, avals) else []
    if eqn.primitive in (while_p, cond_p, jit_p) or eqn.primitive.name in CALLS:
        return [found for sub in subjaxprs(eqn) for each in inner(sub).eqns for found in _buffered(each)]
    return []


def _trips_within(loop: Any, key: int) -> int:
    """How many rows of a host end one trip of a loop puts, as far as that is known."""

    def rows(closed: Any) -> int:
        count = 0
        for eqn in inner(closed).eqns:
            if eqn.primitive is emit_p:
                count += id(eqn.params["entry"]) == key
            else:
                count += sum(map(rows, subjaxprs(eqn))) * (trip_count(eqn) or 1 if eqn.primitive is while_p else 1)
        return count

    return max(1, rows(loop.params["body_jaxpr"]))


def trip_count(eqn: Any) -> int | None:
    """Trip count of a realised loop, where the program says it: that of a scan, or one of a step that is kept whole."""
    asked = inner(eqn.params["cond_jaxpr"]).eqns
    names = [each.primitive.name for each in asked]
    if names == ["add", "lt"]:
        return 1
    limit: Any = asked[-1].invars[1] if names == ["lt"] else None
    return int(limit.val) if is_literal(limit) else None


def _crosses(closed: Any, slots: dict[int, Slot]) -> bool:
    """Whether anything in a jaxpr crosses at once."""
    eqns = inner(closed).eqns
    own = any(eqn.primitive is emit_p and id(eqn.params["entry"]) not in slots for eqn in eqns)
    return own or any(_crosses(sub, slots) for eqn in eqns for sub in subjaxprs(eqn))


# --- The front door ------------------------------------------------------------------------------------------


def gathering(run: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
    """A function that does what `run` does, with what its loops send gathered in buffers."""

    def gathered(*values: Any) -> list[Any]:
        found = jax.make_jaxpr(run)(*values)
        if not any(_buffered(eqn) for eqn in found.jaxpr.eqns):
            return as_function(found)(*values)
        return _outside(found, values)

    return gathered


def _outside(closed: Any, args: Sequence[Any]) -> list[Any]:
    """Evaluate what lies in no loop: each loop that sends has buffers of its own, all else crosses at once."""
    jaxpr = inner(closed)
    values = dict(zip(jaxpr.constvars, consts(closed), strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if is_literal(atom) else values[atom]

    for eqns_send, eqns in in_runs(jaxpr.eqns, sends):
        eqn, operands = eqns[0], [value(v) for v in eqns[0].invars]
        if not eqns_send or not _buffered(eqn) or eqn.primitive is emit_p:
            advance(jaxpr, eqns, values)
            continue
        if eqn.primitive is while_p and calls_host(eqn):
            # What it calls may fail, and end the program: what led up to that has crossed by then.
            outs = eqn.primitive.bind(*operands, **eqn.params)
        elif eqn.primitive is while_p:
            buffers = Buffers.of_loop(eqn)
            outs = buffers.loop(eqn, operands, buffers.empty(), outermost=True)[0]
        elif eqn.primitive is cond_p:
            branches = [lambda *ops, b=branch: _outside(b, ops) for branch in eqn.params["branches"]]
            outs = lax.switch(operands[0], branches, *operands[1:])
        else:
            (called,) = subjaxprs(eqn)
            outs = _outside(called, operands)
        values.update(zip(eqn.outvars, outs, strict=True))
    return [value(v) for v in jaxpr.outvars]
