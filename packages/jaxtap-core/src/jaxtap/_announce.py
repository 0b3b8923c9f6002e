"""What single equations and marked values send: payload, gate, and the crossing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._active import Key
from jaxtap._around import Around, aligned
from jaxtap._config import OPS, Selection
from jaxtap._emit import Part, PointEntry, send_from_point
from jaxtap._equations import fits
from jaxtap._hunt import hunts_inside
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._lanes import chosen, is_empty, picked
from jaxtap._leaves import Leaves
from jaxtap._mark import Site, is_point, own_marks
from jaxtap._payload import (
    apply,
    emitters,
    flattened,
    has_leaves,
    lanes_of,
    lets_through,
    numbering,
    over_lanes,
    seen,
    tapping,
)
from jaxtap._table import leaf_columns
from jaxtap._where import allows


@dataclasses.dataclass(frozen=True)
class Listener:
    """One tap (or the lens itself, for a marked value) on one point, after its filters have let it through.

    Attributes:
      key: the lens.
      index: which of the lens's taps; -1 for a marked value.
      text: the address as the lens writes it.
      selection: what is sent.
      output: index of the one output looked at, or None for all.
      trips_on: a traced predicate without which nothing is sent, or None.
    """

    key: Key
    index: int
    text: str
    selection: Selection
    output: int | None = None
    trips_on: Callable[..., Any] | None = None


def listeners(params: dict[str, Any]) -> list[Listener]:
    """Who is told of a point, given the parameters of its mark."""
    site: Site = params["site"]
    found: list[Listener] = []
    for key in params["lenses"]:
        text = numbering(key).text(params["path"])
        own = _BY_KIND[site.kind](key, site, text)
        if own:
            key.tapped.add(site.op)
            if key.lens is not None:
                key.lens.saw_point(text, site)
        found += own
    return found


def _by_tap(key: Key, kind: str, site: Site, text: str) -> list[Listener]:
    """The taps of one kind that look at a point or a loop."""
    return [
        Listener(key, i, text, tap.selection, tap.output, tap.trips_on.value if tap.trips_on else None)
        for i, tap in tapping(key, kind, site, text)
    ]


def _of_primitive(key: Key, site: Site, text: str) -> list[Listener]:
    return _by_tap(key, "primitive", site, text)


def _of_cotangent(key: Key, site: Site, text: str) -> list[Listener]:
    return _by_tap(key, "cotangent", site, text)


def wires(params: dict[str, Any]) -> list[Listener]:
    """The tripwires on the settled state of a loop, given the parameters of its mark."""
    site: Site = params["site"]
    found: list[Listener] = []
    for key in params["lenses"]:
        text = numbering(key).text(params["path"])
        found += [wire for wire in _by_tap(key, site.kind, site, text) if has_leaves(site, wire.selection)]
    return found


def _of_mark(key: Key, site: Site, text: str) -> list[Listener]:
    view = key.view
    if not allows(view.where, text, site.source):
        return []
    for patterns, selection in view.marks:
        if fits(site.op, patterns):
            gate = selection.gate.value if selection.gate else None
            return [Listener(key, -1, text, selection, trips_on=gate)]
    return []


def _of_backward(key: Key, site: Site, text: str) -> list[Listener]:
    view = key.view
    if view.backward is None or not has_leaves(site, view.backward):
        return []
    asked = lets_through(view, site, text) if site.op in OPS else bool(_of_mark(key, site, text))
    return [Listener(key, -1, text, view.backward)] if asked else []


_BY_KIND = {
    "primitive": _of_primitive,
    "mark": _of_mark,
    "backward": _of_backward,
    "cotangent": _of_cotangent,
}


def has_listeners(jaxpr: Any) -> bool:
    """Whether anyone is told of a point in `jaxpr` itself, or in what lies in it."""
    eqns = inner(jaxpr).eqns
    own = [bool(listeners(eqn.params)) for eqn in eqns if is_point(eqn)]
    return any(own) or any(has_listeners(sub) for eqn in eqns for sub in subjaxprs(eqn))


def has_wires(jaxpr: Any) -> bool:
    """Whether there is a tripwire on the state of a loop in `jaxpr`, or of the loop whose body it is."""
    own = any(wires(mark.params) for mark in own_marks(jaxpr))
    return own or any(has_wires(sub) for eqn in inner(jaxpr).eqns for sub in subjaxprs(eqn))


def sends(jaxpr: Any) -> bool:
    """Whether anything is sent from `jaxpr`: of a loop in it, of a point, or of the loop whose body it is."""
    # Not short-circuited: everything met is to be reported, also where it is filtered out.
    return any([seen(jaxpr), has_listeners(jaxpr), has_wires(jaxpr), hunts_inside(jaxpr)])


def only_trips(jaxpr: Any, own_state: bool = True) -> bool:
    """Whether nothing is sent from `jaxpr` unless a tripwire fires, the state of its own loop looked at or not."""
    eqns = inner(jaxpr).eqns
    quiet = all(each.trips_on is not None for eqn in eqns if is_point(eqn) for each in listeners(eqn.params))
    if own_state and emitters(own_marks(jaxpr)):
        return False
    return quiet and all(only_trips(sub) for eqn in eqns for sub in subjaxprs(eqn))


def announce(params: dict[str, Any], values: Sequence[Any], around: Around) -> None:
    """Send what a point's listeners want of it.

    Args:
      params: the parameters of its mark.
      values: the values of its leaves, witnesses left out.
      around: where it stands.
    """
    lanes = lanes_of(params["layers"])
    mask = aligned(around, lanes)
    for listener in listeners(params):
        tell(listener, params, values, around, lanes, mask)


def tripped(listener: Listener, params: dict[str, Any], values: Sequence[Any]) -> Any:
    """Whether a tripwire fires, for each lane."""
    assert listener.trips_on is not None
    return fires(listener.trips_on, listener, params, values)


def fires(predicate: Callable[..., Any], listener: Listener, params: dict[str, Any], values: Sequence[Any]) -> Any:
    """Whether a traced predicate is true of what a listener looks at, for each lane."""

    def one_lane(values: Sequence[Any]) -> Any:
        return jnp.any(jnp.asarray(predicate(_looked_at(listener, params["site"], values)), bool))

    return over_lanes(params["layers"], len(values), one_lane)(list(values))


def tell(
    listener: Listener, params: dict[str, Any], values: Sequence[Any], around: Around, lanes: tuple[int, ...], mask: Any
) -> Any:
    """Send what one listener wants, for the lanes in `mask`; returns whether it wanted anything."""
    wanted: Any = True
    sent = chosen(listener.key.view.lanes, lanes)
    if is_empty(sent):
        return False
    sample_every, between = listener.key.view.sample_every, listener.selection.between
    is_sampled = bool(around.steps) and sample_every != 1 and listener.trips_on is None

    def where(bad: Any) -> Any:
        """Where a predicate is true in the lanes that have run and are sent."""
        return picked(bad if mask is None else bad & mask, sent)

    if listener.trips_on is not None:
        mask = where(tripped(listener, params, values))
        wanted = mask.any()
    else:
        if is_sampled:
            wanted = around.steps[-1] % sample_every == 0
        if is_sampled and between is not None:
            wanted = wanted | where(fires(between.value, listener, params, values)).any()
        mask = None if mask is None else picked(mask, sent)
        if mask is not None and not (around.partitioned and listener.key.view.shards):
            wanted = wanted & mask.any()
    if mask is not None and not lanes:
        mask = None

    def send() -> None:
        arrays, part = _payload(listener, params, values, around.total)
        entry = PointEntry(
            key=listener.key,
            path=params["path"],
            site=params["site"],
            tap=listener.index,
            num_steps=len(around.steps),
            masked=mask is not None,
            parts=(part,),
            lanes=lanes,
            speaker=around.speaker,
            is_urgent=listener.trips_on is not None,
            sample_every=sample_every if is_sampled and between is None else 1,
        )
        send_from_point(entry, around.steps, mask, arrays)

    if wanted is True:
        send()
    else:
        lax.cond(wanted, send, lambda: None)
    return wanted


def _looked_at(listener: Listener, site: Site, values: Sequence[Any]) -> Any:
    """What a tap's functions receive: the outputs, one of them, or the leaves of a marked value."""
    if listener.output is None:
        return Leaves(values, site.names, site.treedef)
    if not -len(values) <= listener.output < len(values):
        raise IndexError(
            f"output={listener.output} is out of range: {listener.text} ({site.source}) has {len(values)} outputs."
        )
    return values[listener.output]


def _payload(
    listener: Listener, params: dict[str, Any], values: Sequence[Any], total: int | None
) -> tuple[list[Any], Part]:
    site: Site = params["site"]
    shape: dict[str, Any] = {}

    def one_lane(values: Sequence[Any]) -> list[Any]:
        value = _value(listener, site, values)
        shape["columns"] = leaf_columns(value)
        return flattened(shape, value)

    arrays = over_lanes(params["layers"], len(values), one_lane)(list(values))
    lanes = lanes_of(params["layers"]) if arrays else ()
    sent = chosen(listener.key.view.lanes, lanes)
    arrays = [picked(array, sent) for array in arrays]
    lanes = lanes if sent is None else tuple(map(len, sent))
    columns = _columns(listener, site, shape["columns"])
    site = dataclasses.replace(site, total=total)
    return arrays, Part(site, lanes, shape["treedef"], shape["restores"], shape["fixed"], columns, sent)


def _value(listener: Listener, site: Site, values: Sequence[Any]) -> Any:
    seen = _looked_at(listener, site, values)
    if listener.selection.chooses:
        return apply(listener.selection, seen, site, listener.text)
    if site.kind == "mark" and site.treedef is not None:
        return jax.tree_util.tree_unflatten(site.treedef, list(values))
    return tuple(seen) if isinstance(seen, Leaves) else seen


def _columns(listener: Listener, site: Site, names: tuple[str, ...]) -> tuple[str, ...]:
    """What the leaves of a value are called in a table: one with no name of its own after its equation or mark."""
    whole = not listener.selection.chooses
    if site.kind in ("carry", "output", "backward") and whole and len(names) == len(site.names):
        return site.names
    if len(names) == 1 and names[0] == "value_0":
        return (site.op,)
    return tuple(f"{site.op}{n.removeprefix('value')}" if n == "value" or n.startswith("value_") else n for n in names)
