"""What a lens sends of a loop: filters, selectors and lanes, worked out when the loop is lowered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap._active import Key
from jaxtap._config import Selection, Tap, View
from jaxtap._emit import Part, shipped
from jaxtap._equations import fits
from jaxtap._guard import described
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._lanes import Chosen, chosen, is_empty
from jaxtap._lanes import picked as picked_lanes
from jaxtap._leaves import Leaves, SelectError, matches
from jaxtap._mark import Path, Site, own_marks
from jaxtap._numbering import Numbering
from jaxtap._table import leaf_columns
from jaxtap._where import allows

# Reads the values of a mark's leaves.
Read = Callable[[Any], list[Any]]
Layers = tuple[tuple[int, tuple[int | None, ...]], ...]


@dataclasses.dataclass(frozen=True)
class Emitter:
    """One lens on one loop, after its filters have let it through.

    Attributes:
      key: the lens.
      path: address of the loop.
      text: that address as the lens writes it.
      marks: the marks whose values are sent: the carry, the outputs, or both.
    """

    key: Key
    path: Path
    text: str
    marks: tuple[Any, ...]

    @property
    def view(self) -> View:
        """The lens's device-side configuration."""
        return self.key.view

    @property
    def site(self) -> Site:
        """The loop."""
        return self.marks[0].params["site"]

    @property
    def layers(self) -> Layers:
        """The vmaps around the loop, innermost first."""
        return self.marks[0].params["layers"]

    @property
    def lanes(self) -> tuple[int, ...]:
        """Size of each mapped axis, outermost first."""
        return tuple(size for size, _ in reversed(self.layers))

    @property
    def chosen(self) -> Chosen:
        """The lanes that are sent, or None for all."""
        return chosen(self.view.lanes, self.lanes)

    @property
    def sent_lanes(self) -> tuple[int, ...]:
        """How many lanes are sent of each mapped axis, outermost first."""
        return self.lanes if self.chosen is None else tuple(map(len, self.chosen))

    def of_sent(self, mask: Any) -> Any:
        """A mask over all lanes, or None for all of them, for the lanes that are sent."""
        return None if mask is None else picked_lanes(mask, self.chosen)

    def over_lanes(self, pred: Any, carry: Sequence[Any]) -> Any:
        """A batched condition over all lanes: its axes are those of the vmaps that it depends on."""
        ranks = [self.marks[0].invars.index(v) for v in carry if v in self.marks[0].invars]
        mapped = pred_layers([dims[ranks[0]] for _, dims in self.layers], pred.ndim) if ranks else None
        if mapped is None:
            return jnp.broadcast_to(pred.any(), self.lanes)
        shape = [size if on else 1 for (size, _), on in zip(self.layers, mapped, strict=True)]
        return jnp.broadcast_to(pred.reshape(shape[::-1]), self.lanes)


def pred_layers(dims: Sequence[int | None], rank: int) -> list[bool] | None:
    """Which of the vmaps around a `while_loop` (innermost first) its condition is mapped over.

    JAX puts the axis of a mapped condition first, and in a vmap that the condition does not depend on it
    puts the carry's axis just behind those of the condition. So the carry's axes tell.

    Args:
      dims: at which axis each vmap entered a carry leaf; None if it did not.
      rank: how many axes the condition has in the end.
    """

    def go(at: int, seen: int) -> list[bool] | None:
        if at == len(dims):
            return [] if seen == rank else None
        if dims[at] == 0 and seen < rank:
            rest = go(at + 1, seen + 1)
            if rest is not None:
                return [True, *rest]
        if dims[at] is None or dims[at] == seen:
            rest = go(at + 1, seen)
            if rest is not None:
                return [False, *rest]
        return None

    return go(0, 0)


# --- Filters -------------------------------------------------------------------------------------------------


def numbering(key: Key) -> Numbering:
    """How the lens of a key numbers outermost boundaries; a throwaway one where it has been closed."""
    lens = key.lens
    return lens.numbering if lens is not None else Numbering()


def emitters(marks: Sequence[Any], silent: bool = False) -> list[Emitter]:
    """The lenses that send something of a loop, with the marks that they send; all lenses if `silent` ones count."""
    found = []
    for key in marks[0].params["lenses"] if marks else ():
        path = marks[0].params["path"]
        text = numbering(key).text(path)
        sent = tuple(mark for mark in marks if silent or _is_sent(key, mark, text))
        if not sent:
            key.left_out.add(text)
        if sent:
            found.append(Emitter(key, path, text, sent))
    return found


def _is_sent(key: Key, mark: Any, text: str) -> bool:
    site, view, lens = mark.params["site"], key.view, key.lens
    selection = view.select if site.kind == "carry" else view.outputs
    if lens is not None:
        lens.saw(text, mark)
    if selection is None or (site.kind == "output" and not site.names):
        return False
    if is_empty(chosen(view.lanes, lanes_of(mark.params["layers"]))):
        return False
    return lets_through(view, site, text) and has_leaves(site, selection)


def lets_through(view: View, site: Site, text: str) -> bool:
    """Whether the filters of a lens let a loop through."""
    if site.op not in view.ops or (site.internal and not view.internals):
        return False
    if view.max_depth is not None and text.count("/") > view.max_depth:
        return False
    return allows(view.where, text, site.source)


def has_leaves(site: Site, selection: Selection) -> bool:
    """Whether a selection by name names any leaf; any other selection takes what there is."""
    return selection.names is None or bool(picked(site, selection))


def tapping(key: Key, kind: str, site: Site, text: str) -> list[tuple[int, Tap]]:
    """The taps of a lens, with their positions, that look at one kind of thing, this primitive and this address."""
    if site.internal and not key.view.internals:
        return []
    return [
        (i, tap)
        for i, tap in enumerate(key.view.taps)
        if tap.kind == kind
        and (kind != "primitive" or fits(site.op, tap.primitives))
        and allows(tap.where, text, site.source)
    ]


def picked(site: Site, selection: Selection) -> list[int]:
    """Indices of the leaves that a selection names, or finds."""
    if selection.finder is not None:
        return list(selection.finder.value(site.names, site.treedef))
    found = [i for name in selection.names or () for i in matches(site.names, name)]
    return list(dict.fromkeys(found))


def seen(jaxpr: Any) -> bool:
    """Whether any lens sends anything of a loop in `jaxpr`, or of the loop whose body it is."""
    eqns = inner(jaxpr).eqns
    # Not short-circuited: each loop is to be reported, also where it is filtered out.
    own = bool(emitters(own_marks(jaxpr)))
    deeper = [seen(sub) for eqn in eqns for sub in subjaxprs(eqn)]
    return own or any(deeper)


# --- Payloads ------------------------------------------------------------------------------------------------


def payload(emitter: Emitter, read: Read) -> tuple[list[Any], tuple[Part, ...]]:
    """The arrays of one crossing, and what the host needs to make values of them."""
    arrays: list[Any] = []
    parts: list[Part] = []
    for mark in emitter.marks:
        site: Site = mark.params["site"]
        selection = emitter.view.select if site.kind == "carry" else emitter.view.outputs
        assert selection is not None
        new, part = _select(emitter, mark, selection, read)
        arrays += new
        parts.append(part)
    return arrays, tuple(parts)


def _select(emitter: Emitter, mark: Any, selection: Selection, read: Read) -> tuple[list[Any], Part]:
    site: Site = mark.params["site"]
    shape: dict[str, Any] = {}

    def one_lane(values: Sequence[Any]) -> list[Any]:
        value = apply(selection, Leaves(values, site.names, site.treedef), site, emitter.text)
        shape["columns"] = _columns(selection, site, value)
        return flattened(shape, value)

    arrays = over_lanes(mark.params["layers"], len(site.names), one_lane)(read(mark))
    # Where a selector takes nothing of a lane, there is nothing to send lane by lane.
    by_lane = arrays or selection.function is None
    arrays = [picked_lanes(array, emitter.chosen) for array in arrays]
    lanes, ids = (emitter.sent_lanes, emitter.chosen) if by_lane else ((), None)
    return arrays, Part(site, lanes, shape["treedef"], shape["restores"], shape["fixed"], shape["columns"], ids)


def lanes_of(layers: Any) -> tuple[int, ...]:
    """Size of each mapped axis, outermost first."""
    return tuple(size for size, _ in reversed(layers))


def over_lanes(layers: Layers, count: int, run: Any) -> Any:
    """A function of one lane's `count` leaves, for all lanes."""
    for size, dims in layers:
        run = jax.vmap(run, in_axes=(list(dims[:count]),), axis_size=size)
    return run


def flattened(shape: dict[str, Any], value: Any) -> list[Any]:
    """The arrays of a selected value as they cross; `shape` is told how they make up the value again."""
    leaves, shape["treedef"] = jax.tree_util.tree_flatten(value)
    shape["fixed"] = tuple((i, leaf) for i, leaf in enumerate(leaves) if not is_array(leaf))
    forms = [shipped(leaf) for leaf in leaves if is_array(leaf)]
    shape["restores"] = tuple(restore for _, restore in forms)
    return [form for form, _ in forms]


def _columns(selection: Selection, site: Site, value: Any) -> tuple[str, ...]:
    """What the leaves of a selected value are called in a table."""
    if selection.function is not None:
        return leaf_columns(value)
    if selection.names is None:
        return site.names
    found = picked(site, selection)
    if selection.single and len(found) == 1:
        return (selection.names[0],)
    # A dictionary's leaves come in the order of its keys.
    return tuple(sorted(site.names[i] for i in found))


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or a number that becomes one."""
    return hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float, complex))


def apply(selection: Selection, leaves: Any, site: Site, path: str) -> Any:
    """What a selection makes of leaves.

    Raises:
      SelectError: if its function raises.
    """
    if selection.names is not None and selection.function is not None:
        found = picked(site, selection)
        leaves = Leaves([leaves[i] for i in found], [site.names[i] for i in found])
    elif selection.names is not None:
        found = picked(site, selection)
        if selection.single and len(found) == 1:
            return leaves[found[0]]
        return {site.names[i]: leaves[i] for i in found}
    if selection.function is None:
        return tuple(leaves)
    function = selection.function.value
    try:
        return _call(selection, function, leaves, path)
    except Exception as error:
        raise SelectError(
            f"select failed on {path} ({site.source}), whose {site.kind} leaves are: "
            f"{', '.join(f'{i}: {name}' for i, name in enumerate(site.names)) or 'none'}. It raised "
            f"{described(error)}. A selector is traced: it may use jax functions of the leaves, no "
            f"Python values of them. To leave this loop out, pass where= or a leaf name."
        ) from error


def _call(selection: Selection, function: Any, leaves: Any, path: str) -> Any:
    if selection.path_is == "keyword":
        return function(leaves, path=path)
    return function(leaves, path) if selection.path_is == "positional" else function(leaves)
