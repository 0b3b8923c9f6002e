"""A marked while, written out with its step counter, lane masks and crossings."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._announce import announce
from jaxtap._around import Around, aligned, chosen
from jaxtap._crossings import Crossings
from jaxtap._jaxprs import consts, inner, is_literal
from jaxtap._liveness import plain
from jaxtap._mark import leaves_of, own_marks
from jaxtap._payload import Emitter, Read, emitters
from jaxtap._seal import sealed, stepwise, unshared
from jaxtap._settled import settling
from jaxtap._slices import sliced
from jaxtap._step import fires_inline, observe, way_of
from jaxtap._walk import walk


def realise_while(params: dict[str, Any], args: list[Any], around: Around) -> list[Any]:
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_jaxpr, closed = params["cond_jaxpr"], params["body_jaxpr"]
    body = inner(closed)
    cond_consts, body_consts, carry = args[:num_cond], args[num_cond : num_cond + num_body], args[num_cond + num_body :]
    crossings = Crossings(own_marks(body), around)
    whole = closed
    closed, settled = settling(closed, len(carry)) if crossings.may_settle else (closed, [])
    pred_aval = inner(cond_jaxpr).outvars[0].aval
    batched = bool(pred_aval.shape)
    way, cond_way = way_of(closed, around), way_of(cond_jaxpr, around)

    def going_on(i: Any, carry: Any, ran: Any = None) -> Any:
        """Evaluate the condition, after a step that some lanes have run: of others it is not asked any more."""
        ins = [*cond_consts, *carry]
        asked = batched and ran is not None

        def here(around: Around) -> Around:
            return lanes_of(around, ran) if asked else around

        if cond_way.observed:
            walk(cond_jaxpr, unshared(ins), here(around.observing(i, None)))
        if cond_way.inline:
            return walk(cond_jaxpr, ins, here(around.inside(i, None)))[0][0]
        return sealed(i, lambda: plain(cond_jaxpr, ins)[0], [pred_aval])[0]

    def reader(carry: Any) -> Read:
        known = dict(zip(body.constvars, consts(closed), strict=True))
        known |= dict(zip(body.invars, [*body_consts, *carry], strict=True))
        return lambda mark: sliced(body, leaves_of(mark), known, {})

    def tell_settled(i: Any, start: Any, carry: Any, running: Any) -> None:
        """Send the marked values that step `i` was given or has handed on."""
        known = dict(zip(body.constvars, consts(closed), strict=True))
        known |= dict(zip(body.invars, [*body_consts, *start], strict=True))
        outs = {v: new for v, new in zip(body.outvars, carry, strict=True) if not is_literal(v)}
        here = around.inside(i, None)
        for mark in settled:
            values = sliced(body, leaves_of(mark), known, outs)
            announce(mark.params, values, lanes_of(here, running) if batched else here)

    def masks(emitter: Emitter, pred: Any) -> Any:
        mask = aligned(around, emitter.lanes)
        own = emitter.over_lanes(pred, body.invars[num_body:]) if batched else None
        return mask if own is None else own if mask is None else own & mask

    def sent(emitter: Emitter, pred: Any) -> Any:
        """Of the lanes that are sent, which run."""
        return emitter.of_sent(masks(emitter, pred))

    def step(state: Any) -> Any:
        i, carry = state
        ins = [*body_consts, *carry]
        if not batched:
            outs, _ = walk(closed, ins, around.inside(i, None)) if way.inline else plain(closed, ins)
            return i + 1, outs
        (running,), _ = plain(cond_jaxpr, [*cond_consts, *carry])
        outs, _ = walk(closed, ins, lanes_of(around.inside(i, None), running)) if way.inline else plain(closed, ins)
        return i + 1, [chosen(running, new, old) for new, old in zip(outs, carry, strict=True)]

    def lanes_of(around: Around, running: Any) -> Around:
        """The surroundings of a step, with the lanes that run it."""
        for emitter in emitters(crossings.marks, silent=True):
            return dataclasses.replace(around, lanes=emitter.lanes, mask=masks(emitter, running))
        return around

    def step_and_send(state: Any) -> Any:
        i, start, running, events, rings = state
        inside: Any = False
        ins = [*body_consts, *start]
        if way.observed:
            observing = lanes_of(around.observing(i, None), running) if batched else around.observing(i, None)
            inside = observe(way, closed, ins, i, lambda ins: walk(closed, ins, observing))
        _, carry = stepwise(i, step, (i, start)) if way.whole else step((i, start))
        tell_settled(i, start, carry, running)
        pred = going_on(i + 1, carry, running)
        last, after = ~pred.any(), reader(carry)

        def of_step(emitter: Emitter) -> Any:
            return sent(emitter, running)

        fired: dict[Any, Any] = {}
        if crossings.guarded:
            mask = masks(emitters(crossings.marks, silent=True)[0], running)
            before, again = reader(start), lambda around: walk(whole, ins, around)
            fired = crossings.watch(i, None, lambda lanes: mask, before, after, again)
        if crossings.keepers:
            inside = inside | fires_inline(way, closed, ins)
        fired = {e.key: fired.get(e.key, False) | inside for e in crossings.keepers}
        rings = crossings.keep(rings, i, i + 1, last, of_step, after, fired)
        ran = list(map(of_step, crossings.emitters))
        events = [
            n
            if mask is None or crossings.is_local(e)
            else n + jnp.where(i % e.view.sample_every == 0, mask.sum(dtype=jnp.int32), 0)
            for n, e, mask in zip(events, crossings.emitters, ran, strict=True)
        ]
        for emitter, mask, n in zip(crossings.emitters, ran, events, strict=True):
            crossings.step(emitter, i, i + 1, last, mask, n, after)
        return i + 1, carry, pred, events, rings

    first = going_on(jnp.int32(0), carry)
    rings = crossings.start(lambda emitter: sent(emitter, first) is not None, reader(carry))
    state = (jnp.int32(0), carry, first, [jnp.int32(0) for _ in crossings.emitters], rings)
    count, carry, *_ = lax.while_loop(lambda s: s[2].any() if batched else s[2], step_and_send, state)
    crossings.none(count, lambda emitter: sent(emitter, first))
    return list(carry)
