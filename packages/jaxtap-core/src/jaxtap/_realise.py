"""Realising: when a marked loop is lowered, its steps, gates, lane masks and crossings are written out.

By then every transformation is done. Only settled state is read: the carry at the start of the next step,
and outputs from the stacked array that they were written to. What is read while it is being computed would
not be fused the way it is without a lens, and the program's own result would move by a bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import mlir

from jaxtap._emit import Entry, emit_p
from jaxtap._jaxprs import (
    CALLS,
    consts,
    evaluator,
    inner,
    is_jaxpr,
    is_literal,
    jit_p,
    remat_p,
    scan_counts,
    scan_p,
    subjaxprs,
    while_p,
)
from jaxtap._mark import has_marks, is_mark, is_output, leaves_of, own_marks, quiet, strip
from jaxtap._payload import Emitter, Read, emitters, payload, seen
from jaxtap._slices import Slice, output_position, sliced
from jaxtap._twin import needs_twin


@dataclasses.dataclass(frozen=True)
class Around:
    """What a loop knows of the loops around it.

    Attributes:
      steps: step of each enclosing loop, outermost first.
      lanes: sizes of the mapped axes that `mask` runs over, outermost first.
      mask: which lanes are still running, or None where all are.
      twin: whether this is the copy of a loop that exists for its events only.
    """

    steps: tuple[Any, ...] = ()
    lanes: tuple[int, ...] = ()
    mask: Any = None
    twin: bool = False

    def inside(self, step: Any, lanes: tuple[int, ...] = (), mask: Any = None) -> Around:
        """The surroundings of what lies in a loop's body."""
        new = dataclasses.replace(self, steps=(*self.steps, step))
        return new if mask is None else dataclasses.replace(new, lanes=lanes, mask=mask)


def aligned(around: Around, lanes: tuple[int, ...]) -> Any:
    """The mask of the surroundings, over the lanes of a loop in them."""
    if around.mask is None:
        return None
    if around.lanes == lanes[: len(around.lanes)]:
        mask = around.mask.reshape(around.lanes + (1,) * (len(lanes) - len(around.lanes)))
        return jnp.broadcast_to(mask, lanes)
    return jnp.broadcast_to(around.mask.any(), lanes)


# --- The crossings of one loop -------------------------------------------------------------------------------


class Crossings:
    """What one loop sends, for every lens that sees it."""

    def __init__(self, marks: Sequence[Any], around: Around) -> None:
        self.around = around
        self.emitters = emitters(marks)
        self.loop = object()

    def __bool__(self) -> bool:
        return bool(self.emitters)

    def send(self, emitter: Emitter, count: Any, mask: Any, read: Any, closes: bool, events: Any = None) -> None:
        """One crossing: what is read (or nothing), `count` steps after the loop's start."""
        arrays, parts = payload(emitter, read) if read is not None else ([], ())
        entry = Entry(
            emitter.key,
            emitter.path,
            self.loop,
            emitter.site,
            emitter.view.sample_every,
            len(self.around.steps),
            mask is not None,
            parts,
            closes,
            len(emitter.marks),
            emitter.lanes,
        )
        head = [count, *self.around.steps]
        if mask is not None:
            head.append(mask)
            if closes:
                head.append(events)
        emit_p.bind(*map(jnp.asarray, head), *arrays, entry=entry)

    def step(self, emitter: Emitter, count: Any, mask: Any, read: Read) -> None:
        """Inside the loop: send the step that ended before this one, if it is sampled."""
        wanted = due(count, emitter.view.sample_every, mask)
        lax.cond(wanted, lambda: self.send(emitter, count, mask, read, closes=False), lambda: None)

    def close(self, emitter: Emitter, count: Any, mask: Any, read: Read, events: Any) -> None:
        """After the loop: send the last step, if it is sampled, and how many there were."""
        wanted = due(count, emitter.view.sample_every, mask)
        if isinstance(wanted, bool):
            self.send(emitter, count, mask, read if wanted else None, closes=True, events=events)
            return
        lax.cond(
            wanted,
            lambda: self.send(emitter, count, mask, read, closes=True, events=events),
            lambda: self.send(emitter, count, mask, None, closes=True, events=events),
        )


def due(count: Any, sample_every: int, mask: Any) -> Any:
    """Whether the step before the `count`-th is sent: there is one, it is sampled, and some lane has run it."""
    wanted: Any = count > 0
    if sample_every > 1:
        wanted = wanted & ((count - 1) % sample_every == 0)
    return wanted if mask is None else wanted & mask.any()


# --- Loops ---------------------------------------------------------------------------------------------------


def realise(primitive: Any, params: dict[str, Any], args: Sequence[Any], around: Around) -> list[Any]:
    """The results of a marked loop, with its crossings written out."""
    bodies = [value for value in params.values() if is_jaxpr(value)]
    if not any(map(seen, bodies)):
        return bare(primitive, params, args)
    if not around.twin and needs_twin(primitive, params):
        results = bare(primitive, params, args)
        realise(primitive, params, args, dataclasses.replace(around, twin=True))
        return results
    return (_realise_scan if primitive is scan_p else _realise_while)(params, list(args), around)


def bare(primitive: Any, params: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """The results of a loop as it is without any lens."""
    return primitive.bind(*args, **quiet(params))


def _index(stacked: Any, i: Any) -> Any:
    return lax.dynamic_index_in_dim(stacked, i, keepdims=False, allow_negative_indices=False)


def _realise_scan(params: dict[str, Any], args: list[Any], around: Around) -> list[Any]:
    num_consts, num_carry = scan_counts(params)
    closed, length, reverse = params["jaxpr"], params["length"], params["reverse"]
    body = inner(closed)
    const_values, carry, xs = args[:num_consts], args[num_consts : num_consts + num_carry], args[num_consts + num_carry :]
    crossings = Crossings(own_marks(body), around)
    carry_vars, x_vars = body.invars[num_consts : num_consts + num_carry], body.invars[num_consts + num_carry :]
    y_vars = body.outvars[num_carry:]
    late = _late_outputs(crossings, body, num_consts, num_carry)

    def place(i: Any) -> Any:
        return length - i - 1 if reverse else i

    def reader(carry: Any, yss: Any, kept: Any, i: Any) -> Read:
        """Reads the leaves of a mark as they stood after step `i`."""
        fixed = dict(zip(body.constvars, consts(closed), strict=True)) | dict(zip(body.invars, const_values))
        fixed |= {var: Slice(_index, x, place(i)) for var, x in zip(x_vars, xs, strict=True)}
        state = fixed | dict(zip(carry_vars, carry, strict=True))
        outs = {var: Slice(_index, ys, place(i)) for var, ys in zip(y_vars, yss, strict=True) if not is_literal(var)}
        outs |= dict(zip(late, kept, strict=True))

        def read(mark: Any) -> list[Any]:
            return sliced(body, leaves_of(mark), fixed, outs) if is_output(mark) else sliced(body, leaves_of(mark), state)

        return read

    def step(state: Any) -> Any:
        i, carry, yss, kept = state
        for emitter in crossings.emitters:
            mask = aligned(around, emitter.lanes)
            crossings.step(emitter, i, mask, reader(carry, yss, kept, i - 1))
        x = [_index(x, place(i)) for x in xs]
        outs, kept = walk(closed, [*const_values, *carry, *x], around.inside(i), late)
        yss = [
            lax.dynamic_update_index_in_dim(ys, y, place(i), 0, allow_negative_indices=False)
            for ys, y in zip(yss, outs[num_carry:], strict=True)
        ]
        return i + 1, outs[:num_carry], yss, kept

    yss = [jnp.zeros((length, *var.aval.shape), var.aval.dtype) for var in y_vars]
    kept = [jnp.zeros(var.aval.shape, var.aval.dtype) for var in late]
    state = (jnp.int32(0), carry, yss, kept)
    _, carry, yss, kept = lax.while_loop(lambda s: s[0] < length, step, state) if length else state
    for emitter in crossings.emitters:
        mask = aligned(around, emitter.lanes)
        sampled = math.ceil(length / emitter.view.sample_every)
        events = None if mask is None else mask.sum(dtype=jnp.int32) * sampled
        crossings.close(emitter, length, mask, reader(carry, yss, kept, length - 1), events)
    return [*carry, *yss]


def _late_outputs(crossings: Crossings, body: Any, num_consts: int, num_carry: int) -> list[Any]:
    """Outputs to be seen that the loop does not keep: they are carried on to the next step."""
    late: list[Any] = []
    settled = [*body.constvars, *body.invars[:num_consts], *body.invars[num_consts + num_carry :]]
    for emitter in crossings.emitters:
        for mark in emitter.marks:
            for operand in leaves_of(mark) if is_output(mark) else ():
                found = is_literal(operand) or operand in settled or operand in late
                if not found and output_position(body, operand, num_carry) is None:
                    late.append(operand)
    return late


def _realise_while(params: dict[str, Any], args: list[Any], around: Around) -> list[Any]:
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_jaxpr, closed = params["cond_jaxpr"], params["body_jaxpr"]
    body = inner(closed)
    cond_consts, body_consts, carry = args[:num_cond], args[num_cond : num_cond + num_body], args[num_cond + num_body :]
    crossings = Crossings(own_marks(body), around)
    pred_shape = inner(cond_jaxpr).outvars[0].aval.shape
    quiet_cond = strip(cond_jaxpr)

    def going_on(state: Any) -> Any:
        i, carry, *_ = state
        (pred,), _ = walk(cond_jaxpr, [*cond_consts, *carry], around.inside(i))
        return pred.any() if pred_shape else pred

    def reader(carry: Any) -> Read:
        known = dict(zip(body.constvars, consts(closed), strict=True))
        known |= dict(zip(body.invars, [*body_consts, *carry], strict=True))
        return lambda mark: sliced(body, leaves_of(mark), known)

    def masks(emitter: Emitter, pred: Any) -> Any:
        mask = aligned(around, emitter.lanes)
        own = None if pred is None else emitter.over_lanes(pred, body.invars[num_body:])
        return mask if own is None else own if mask is None else own & mask

    def step(state: Any) -> Any:
        i, carry, ran, events = state
        for emitter in crossings.emitters:
            crossings.step(emitter, i, masks(emitter, ran), reader(carry))
        if not pred_shape:
            outs, _ = walk(closed, [*body_consts, *carry], around.inside(i))
            return i + 1, outs, ran, _counted(events, i)
        (running,), _ = walk(quiet_cond, [*cond_consts, *carry], around)
        lanes, mask = _lane_mask(body, running, crossings, masks, num_body)
        outs, _ = walk(closed, [*body_consts, *carry], around.inside(i, lanes, mask))
        outs = [_choose(running, new, old) for new, old in zip(outs, carry, strict=True)]
        return i + 1, outs, running, _counted(events, i, running)

    def _counted(events: Any, i: Any, running: Any = None) -> Any:
        """Events so far of each lens, where the host cannot work them out."""
        new = []
        for emitter, count in zip(crossings.emitters, events, strict=True):
            mask = masks(emitter, running)
            if mask is not None:
                sampled = i % emitter.view.sample_every == 0
                count = count + jnp.where(sampled, mask.sum(dtype=jnp.int32), 0)
            new.append(count)
        return new

    ran = jnp.zeros(pred_shape, bool) if pred_shape else None
    state = (jnp.int32(0), list(carry), ran, [jnp.int32(0) for _ in crossings.emitters])
    count, carry, ran, events = lax.while_loop(going_on, step, state)
    for emitter, sent in zip(crossings.emitters, events, strict=True):
        crossings.close(emitter, count, masks(emitter, ran), reader(carry), sent)
    return list(carry)


def _lane_mask(body: Any, running: Any, crossings: Crossings, masks: Any, num_body: int) -> tuple[Any, Any]:
    """Which lanes run this step, for the loops inside it."""
    for emitter in crossings.emitters or emitters(own_marks(body), silent=True):
        return emitter.lanes, masks(emitter, running)
    return running.shape, running


def _choose(running: Any, new: Any, old: Any) -> Any:
    """New state for lanes that run, old state for the others, as JAX lowers a batched condition."""
    shape = running.shape + (1,) * (jnp.ndim(new) - running.ndim)
    return lax.select_n(jnp.broadcast_to(running.reshape(shape), jnp.shape(new)), old, new)


# --- Everything between loops --------------------------------------------------------------------------------


def walk(closed: Any, args: Sequence[Any], around: Around, want: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
    """Evaluate a jaxpr, realising the marked loops in it; also the values of the variables in `want`."""
    jaxpr = inner(closed)
    values = dict(zip(jaxpr.constvars, consts(closed), strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if is_literal(atom) else values[atom]

    for marked, eqns in runs(jaxpr.eqns):
        if marked:
            (eqn,) = eqns
            outs = _enter(eqn, [value(v) for v in eqn.invars], around)
            values.update(zip(eqn.outvars, outs, strict=True))
        else:
            needs = list(dict.fromkeys(v for e in eqns for v in e.invars if not is_literal(v) and v in values))
            gives = [v for e in eqns for v in e.outvars if type(v).__name__ != "DropVar"]
            outs = evaluator(jaxpr, eqns, needs, gives)(*(values[v] for v in needs))
            values.update(zip(gives, outs, strict=True))
    return [value(v) for v in jaxpr.outvars], [value(v) for v in want]


def runs(eqns: Sequence[Any]) -> list[tuple[bool, list[Any]]]:
    """The equations in runs without any mark, and one by one where they hold some; marks themselves left out."""
    found: list[tuple[bool, list[Any]]] = []
    for eqn in eqns:
        if is_mark(eqn):
            continue
        if any(map(has_marks, subjaxprs(eqn))):
            found.append((True, [eqn]))
        elif found and not found[-1][0]:
            found[-1][1].append(eqn)
        else:
            found.append((False, [eqn]))
    return found


def _enter(eqn: Any, args: list[Any], around: Around) -> Sequence[Any]:
    """Evaluate an equation that holds marked loops."""
    primitive, params = eqn.primitive, eqn.params
    if primitive is scan_p or primitive is while_p:
        return realise(primitive, params, args, around)
    if primitive.name == "cond":
        branches = [lambda *ops, b=b: walk(b, ops, around)[0] for b in params["branches"]]
        return lax.switch(args[0], branches, *args[1:])
    if primitive is remat_p:
        if params["differentiated"] and params["prevent_cse"]:
            args = lax.optimization_barrier(args)
        return walk(params["jaxpr"], args, around)[0]
    if primitive is jit_p and _is_plain(params):
        return walk(params["jaxpr"], args, around)[0]
    if primitive.name in CALLS:
        (called,) = subjaxprs(eqn)
        return walk(called, args, around)[0]
    # Left as it is: the loops inside are realised on their own, when this equation is lowered.
    outs = [v for v in eqn.outvars if type(v).__name__ != "DropVar"]
    needs = list(dict.fromkeys(v for v in eqn.invars if not is_literal(v)))
    values = {v: a for v, a in zip(eqn.invars, args, strict=True) if not is_literal(v)}
    part = evaluator(_container(eqn), [eqn], needs, outs)(*(values[v] for v in needs))
    given = dict(zip(outs, part, strict=True))
    return [given.get(v) for v in eqn.outvars]


def _container(eqn: Any) -> Any:
    """Any open jaxpr, to be cut down to one equation."""
    return inner(next(subjaxprs(eqn)))


def _is_plain(params: dict[str, Any]) -> bool:
    """Whether a nested `jit` asks for nothing: evaluating what it holds is the same."""
    shardings = (*params["in_shardings"], *params["out_shardings"])
    layouts = (*params["in_layouts"], *params["out_layouts"])
    plain = all(type(s).__name__ == "UnspecifiedValue" for s in shardings) and not any(map(bool, layouts))
    return plain and not params.get("compiler_options_kvs")


# --- The lowering rules --------------------------------------------------------------------------------------


def _realising(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that realises marked loops and leaves all others to `rule`."""

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        if not any(has_marks(value) for value in params.values() if is_jaxpr(value)):
            return rule(ctx, *args, **params)

        def run(*values: Any) -> list[Any]:
            return realise(primitive, params, values, Around())

        return mlir.lower_fun(run, multiple_results=True)(ctx, *args)

    return lower


def install() -> None:
    """Put the realising rules in front of JAX's own. Without a mark they pass everything on unchanged."""
    for primitive in (scan_p, while_p):
        # No public name gives the present rule; `tests/core/test_private.py` fails when this one moves.
        rule = mlir._lowerings[primitive].rule
        mlir.register_lowering(primitive, _realising(primitive, rule))
