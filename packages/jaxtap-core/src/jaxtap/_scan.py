"""A marked scan, written out as a while with its crossings."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._announce import announce
from jaxtap._around import Around, aligned
from jaxtap._crossings import Crossings
from jaxtap._jaxprs import CALLS_BODY, consts, inner, is_literal, scan_counts, scan_p
from jaxtap._liveness import live, plain
from jaxtap._mark import is_backward, is_output, leaves_of, own_marks
from jaxtap._payload import Emitter, Read
from jaxtap._seal import stepwise
from jaxtap._settled import settling
from jaxtap._slices import Slice, output_position, sliced
from jaxtap._step import fires_inline, observe, way_of
from jaxtap._walk import walk


def _index(stacked: Any, i: Any) -> Any:
    return lax.dynamic_index_in_dim(stacked, i, keepdims=False, allow_negative_indices=False)


def realise_scan(params: dict[str, Any], args: list[Any], around: Around) -> list[Any]:
    num_consts, num_carry = scan_counts(params)
    closed, length, reverse = params["jaxpr"], params["length"], params["reverse"]
    body = inner(closed)
    const_values, carry, xs = (
        args[:num_consts],
        args[num_consts : num_consts + num_carry],
        args[num_consts + num_carry :],
    )
    carry_vars, x_vars = body.invars[num_consts : num_consts + num_carry], body.invars[num_consts + num_carry :]
    y_vars = body.outvars[num_carry:]
    crossings = Crossings(own_marks(body), around)
    late = _late_outputs(crossings, body, num_consts, num_carry)
    whole = closed
    closed, settled = settling(closed, num_carry) if crossings.may_settle else (closed, [])
    way = way_of(closed, around)
    read_xs = live(scan_p, params).inputs[num_consts + num_carry :]

    backward = is_backward(body)

    def masks(emitter: Emitter) -> Any:
        return emitter.of_sent(aligned(around, emitter.lanes))

    def shown(i: Any) -> Any:
        """The step that is told of: a gradient pass goes through those of the forward pass backwards."""
        return length - i - 1 if backward else i

    def place(i: Any) -> Any:
        return length - i - 1 if reverse else i

    def fixed(i: Any) -> dict[Any, Any]:
        """What step `i` is given besides the state."""
        known = dict(zip(body.constvars, consts(closed), strict=True))
        known |= dict(zip(body.invars[:num_consts], const_values, strict=True))
        return known | {var: Slice(_index, x, place(i)) for var, x in zip(x_vars, xs, strict=True)}

    def returned(yss: Any, i: Any) -> dict[Any, Any]:
        """What step `i` has returned."""
        stacked = yss if around.returned is None else around.returned
        return {v: Slice(_index, ys, place(i)) for v, ys in zip(y_vars, stacked, strict=True) if not is_literal(v)}

    def reader(carry: Any, yss: Any, kept: Any, i: Any) -> Read:
        """Reads the leaves of a mark as they stand after step `i`."""
        outs = returned(yss, i) | dict(zip(late, kept, strict=True))
        state = fixed(i) | dict(zip(carry_vars, carry, strict=True))
        return lambda mark: sliced(body, leaves_of(mark), *((fixed(i), outs) if is_output(mark) else (state, {})))

    def tell_settled(i: Any, start: Any, carry: Any, yss: Any) -> None:
        """Send the marked values that step `i` was given or has handed on."""
        known, outs = fixed(i) | dict(zip(carry_vars, start, strict=True)), returned(yss, i)
        outs |= {v: new for v, new in zip(body.outvars[:num_carry], carry, strict=True) if not is_literal(v)}
        for mark in settled:
            announce(mark.params, sliced(body, leaves_of(mark), known, outs), around.inside(shown(i), length))

    def given(carry: Any, i: Any) -> list[Any]:
        """All that step `i` is given."""
        return [*const_values, *carry, *(_index(x, place(i)) for x in xs)]

    def step(state: Any) -> Any:
        i, carry, yss, _ = state
        # An input that only marks read is no part of the program's own step, unless an output is carried out of it.
        own = [way.inline or bool(late) or read for read in read_xs]
        ins = [
            *const_values,
            *carry,
            *(_index(x, place(i)) if r else None for x, r in zip(xs, own, strict=True)),
        ]
        outs, kept = (
            walk(closed, ins, around.inside(shown(i), length), late)
            if way.inline
            else plain(closed, ins, late, CALLS_BODY)
        )
        yss = [
            lax.dynamic_update_index_in_dim(ys, y, place(i), 0, allow_negative_indices=False)
            for ys, y in zip(yss, outs[num_carry:], strict=True)
        ]
        return i + 1, outs[:num_carry], yss, kept

    def step_and_send(all_of_it: Any) -> Any:
        state, rings = all_of_it
        i, start, *_ = state
        inside: Any = False
        if way.observed:
            observing = around.observing(shown(i), length)
            inside = observe(way, closed, given(start, i), i, lambda ins: walk(closed, ins, observing))
        state = stepwise(i, step, state) if way.whole else step(state)
        done, carry, yss, kept = state
        tell_settled(i, start, carry, yss)
        last, after = i == length - 1, reader(carry, yss, kept, i)
        fired: dict[Any, Any] = {}
        if crossings.guarded:
            before, again = reader(start, yss, kept, i), lambda around: walk(whole, given(start, i), around)
            fired = crossings.watch(i, length, lambda lanes: aligned(around, lanes), before, after, again)
        if crossings.keepers:
            inside = inside | fires_inline(way, closed, given(start, i))
        fired = {e.key: fired.get(e.key, False) | inside for e in crossings.keepers}
        rings = crossings.keep(rings, i, done, last, masks, after, fired)
        for emitter in crossings.emitters:
            mask = masks(emitter)
            events = jnp.int32(0)
            if mask is not None and not crossings.is_local(emitter):
                events = mask.sum(dtype=jnp.int32) * (i // emitter.view.sample_every + 1)
            crossings.step(emitter, i, done, last, mask, events, after)
        return state, rings

    if length == 0:
        crossings.none(0, masks)
    yss = [jnp.zeros((length, *var.aval.shape), var.aval.dtype) for var in y_vars]
    kept = [jnp.zeros(var.aval.shape, var.aval.dtype) for var in late]
    state = (jnp.int32(0), carry, yss, kept)
    if length:
        rings = crossings.start(lambda emitter: masks(emitter) is not None, reader(carry, yss, kept, jnp.int32(0)))
        state, _ = lax.while_loop(lambda s: s[0][0] < length, step_and_send, (state, rings))
    _, carry, yss, _ = state
    return [*carry, *yss]


def _late_outputs(crossings: Crossings, body: Any, num_consts: int, num_carry: int) -> list[Any]:
    """Outputs to be seen that the loop does not keep: they are carried out of the step."""
    late: list[Any] = []
    settled = [*body.constvars, *body.invars[:num_consts], *body.invars[num_consts + num_carry :]]
    for mark in crossings.watched:
        for operand in leaves_of(mark) if is_output(mark) else ():
            found = is_literal(operand) or operand in settled or operand in late
            if not found and output_position(body, operand, num_carry) is None:
                late.append(operand)
    return late
