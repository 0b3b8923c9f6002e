"""The columns of a table of events, put together from columns."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap._batches import Batch, Loose
from jaxtap._events import TapEvent
from jaxtap._table import leaf_columns
from jaxtap._tap_chunk import TapChunk


@dataclasses.dataclass
class Segment:
    """Events that come from one place, as columns of a table.

    Attributes:
      at: at which rows of the table they are, ascending: int (n,), or a slice where these follow each other.
      fields: what events have in common, by name.
      leaves: the leaves of their values, by name.
    """

    at: Rows
    fields: dict[str, Any]
    leaves: dict[str, Any]


class _Placed(NamedTuple):
    """As a segment, with places among the events of one batch."""

    at: np.ndarray
    fields: dict[str, Any]
    leaves: dict[str, Any]


FIELDS = ("path", "kind", "step", "total", "lane", "outer", "call", "time", "device", "process")

# Rows of a table. Several times as fast where they are a slice.
Rows = np.ndarray | slice

# Values at rows of a table: one for each, or one for all.
Piece = tuple[Rows, Any]

# Whether events of a kind and path are wanted.
Wanted = Callable[[str, str], bool]


def segments(batches: Sequence[Batch | Loose], skipped: int, wanted: Wanted) -> tuple[list[Segment], int]:
    """The wanted events of several batches, and how many these are.

    Args:
      batches: the events.
      skipped: how many events of the first batch are left out.
      wanted: says of a kind and an address whether its events are wanted.
    """
    found: list[Segment] = []
    rows = 0
    for batch in batches:
        if isinstance(batch, Batch):
            own = _of_batch(batch, skipped, wanted)
        else:
            own = _of_events([event for event in batch.events(skipped) if wanted(event.kind, event.path)], _cell)
        found += [Segment(_as_rows(segment.at + rows), segment.fields, segment.leaves) for segment in own]
        rows += sum(len(segment.at) for segment in own)
        skipped = 0
    return found, rows


def _as_rows(at: np.ndarray) -> Rows:
    first, last = int(at[0]), int(at[-1])
    return slice(first, last + 1) if last + 1 - first == len(at) else at


def row_count(at: Rows) -> int:
    """How many rows there are."""
    return at.stop - at.start if isinstance(at, slice) else len(at)


def _of_batch(batch: Batch, skipped: int, wanted: Wanted) -> list[_Placed]:
    own = [chunk for chunk in batch.chunks() if wanted(chunk.kind, chunk.path)]
    if not skipped and sum(map(len, own)) == len(batch):
        found = [_of_chunk(chunk, chunk.order, slice(None)) for chunk in own]
    else:
        is_left = np.zeros(len(batch), bool)
        for chunk in own:
            is_left[chunk.order] = True
        is_left[:skipped] = False
        places = np.cumsum(is_left) - 1
        kept = [(chunk, is_left[chunk.order]) for chunk in own]
        found = [_of_chunk(chunk, places[chunk.order[keep]], keep) for chunk, keep in kept if keep.any()]
    return sorted(found, key=lambda segment: int(segment.at[0]))


def _of_chunk(chunk: TapChunk, at: np.ndarray, keep: Any) -> _Placed:
    fields = {
        "path": chunk.path,
        "kind": chunk.kind,
        "step": chunk.steps[keep],
        "total": chunk.total,
        "lane": chunk.lanes[keep],
        "outer": chunk.outer[keep],
        "call": chunk.calls[keep],
        "time": chunk.times[keep],
        "device": chunk.device,
        "process": chunk.process,
    }
    leaves = chunk.values
    return _Placed(at, fields, {n: leaf[keep] if hasattr(leaf, "ndim") else leaf for n, leaf in leaves.items()})


def _of_events(events: Sequence[TapEvent], cell: Callable[[Any], Any]) -> list[_Placed]:
    """Events that came one by one, those of one place and form together."""
    groups: dict[Any, list[int]] = {}
    for i, event in enumerate(events):
        groups.setdefault(_form(event), []).append(i)
    return [_of_alike([events[i] for i in at], np.array(at), cell) for at in groups.values()]


def _of_alike(own: Sequence[TapEvent], at: np.ndarray, cell: Callable[[Any], Any]) -> _Placed:
    fields: dict[str, Any] = {name: [getattr(event, name) for event in own] for name in FIELDS}
    fields |= {"path": own[0].path, "kind": own[0].kind}
    for name in ("lane", "outer"):
        fields[name] = np.array(fields[name], np.int64).reshape(len(own), -1)
    cells = [[cell(leaf) for leaf in jax.tree_util.tree_leaves(event.value)] for event in own]
    names = leaf_columns(own[0].value)
    return _Placed(at, fields, dict(zip(names, map(list, zip(*cells, strict=True)), strict=True)))


def of_events(events: Sequence[TapEvent]) -> tuple[list[Segment], int]:
    """Single events, their leaves as they are, and how many these are."""
    found = _of_events(events, lambda leaf: leaf)
    return [Segment(_as_rows(own.at), own.fields, own.leaves) for own in found], len(events)


def _form(event: TapEvent) -> tuple[Any, ...]:
    return event.path, event.kind, leaf_columns(event.value), len(event.lane), len(event.outer)


def _cell(leaf: Any) -> Any:
    return leaf.item() if isinstance(leaf, (np.ndarray, np.generic)) and leaf.ndim == 0 else leaf


# --- Columns -------------------------------------------------------------------------------------------------


def table(pd: Any, found: Sequence[Segment], n: int) -> dict[str, Any]:
    """The columns of a table with `n` rows, for a DataFrame of `pd`, which is pandas."""
    made = columns(found, n)
    for name, column in made.items():
        if isinstance(column, Words):
            made[name] = pd.Series(column.words, dtype=None if column.words else object).array.take(column.codes)
        elif column is None:
            # That it is one of objects spares pandas to look at each of them.
            made[name] = pd.Series(np.empty(n, object), dtype=object, copy=False)
    return made


def columns(found: Sequence[Segment], n: int) -> dict[str, Any]:
    """The columns of a table with `n` rows: arrays, words, or None where there is nothing."""
    table: dict[str, Any] = {}
    for name in FIELDS:
        pieces = [(segment.at, segment.fields[name]) for segment in found]
        if name in ("path", "kind"):
            table[name] = words(pieces, n)
        elif name in ("lane", "outer"):
            table |= _spread(name, pieces, n)
        else:
            table[name] = assembled(pieces, n)
    for name in ("device", "process"):
        # Left out where each row says the same.
        if not n or (table[name] == table[name][0]).all():
            del table[name]
    leaves: dict[str, list[Piece]] = {}
    for segment in found:
        for name, values in segment.leaves.items():
            leaves.setdefault(f"leaf {name}" if name in table else name, []).append((segment.at, values))
    return table | {name: assembled(pieces, n) for name, pieces in leaves.items()}


def _spread(name: str, pieces: Sequence[Piece], n: int) -> dict[str, Any]:
    """Tuples of integers as one column, or one for each position where there are several."""
    width = max((values.shape[1] for _, values in pieces), default=0)
    names = [name] if width <= 1 else [f"{name}_{i}" for i in range(width)]
    return {
        column: assembled([(at, values[:, i]) for at, values in pieces if i < values.shape[1]], n)
        for i, column in enumerate(names)
    }


class Words:
    """A column of words, few of which differ.

    Attributes:
      words: those that there are.
      codes: int (n,), which of them each row holds.
    """

    def __init__(self, words: list[str], codes: np.ndarray) -> None:
        self.words, self.codes = words, codes


def words(pieces: Sequence[Piece], n: int) -> Words:
    """Words at rows, each for all rows of a piece."""
    numbers: dict[str, int] = {}
    codes = np.zeros(n, np.int32)
    for at, word in pieces:
        codes[at] = numbers.setdefault(word, len(numbers))
    return Words(list(numbers), codes)


_DTYPES: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64, "complex": np.complex128}


def assembled(pieces: Sequence[Piece], n: int) -> np.ndarray | None:
    """Values at rows: numbers of Python's kinds where that can be, NaN where numbers are missing, else objects."""
    kinds = {_kind(values) for _, values in pieces}
    if sum(row_count(at) for at, _ in pieces) < n:
        kinds.add("none")
    if kinds <= {"none"}:
        return None
    if len(kinds) == 1 and kinds <= _DTYPES.keys():
        column = np.empty(n, _DTYPES[kinds.pop()])
    elif kinds & {"int", "float"} and kinds <= {"int", "float", "none"}:
        column = np.full(n, np.nan)
    else:
        # Holds None.
        column = np.empty(n, object)
    for at, values in pieces:
        _put(column, at, values)
    return column


def _kind(values: Any) -> str:
    if isinstance(values, list):
        kinds = {_kind(each) for each in values}
        return kinds.pop() if len(kinds) == 1 else "other"
    if values is None:
        return "none"
    if isinstance(values, (bool, int, float, complex)):
        return type(values).__name__
    if not isinstance(values, np.ndarray) or values.ndim > 1:
        return "other"
    if values.dtype == np.bool_:
        return "bool"
    families = (("int", jnp.integer), ("float", jnp.floating), ("complex", jnp.complexfloating))
    return next((name for name, family in families if jnp.issubdtype(values.dtype, family)), "other")


def _put(column: np.ndarray, at: Rows, values: Any) -> None:
    """Write values at rows of a column."""
    if values is None:
        return
    if column.dtype != object:
        column[at] = values
        return
    several = isinstance(values, list) or getattr(values, "ndim", 0) > 0
    cells = _cells(values) if several else itertools.repeat(values)
    column[at] = np.fromiter(cells, object, row_count(at))


def _cells(values: Any) -> Iterable[Any]:
    return values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values
