"""Rows that have been taken up, as columns. Events are made only when someone asks for them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxtap._accounts import Placed
from jaxtap._emit import Entry, Part, PointEntry
from jaxtap._events import TapEvent
from jaxtap._tap_chunk import TapChunk

# What a block takes besides its columns.
OVERHEAD_BYTES = 2000
# How many rows are made Python numbers at once.
AT_ONCE = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Rows of one loop, equation or marked value, all of which hold events.

    Attributes:
      entry: static knowledge of it.
      path: its address.
      steps: int (n,), the step of each row.
      outer: int (n, depth), steps of the enclosing loops, outermost first.
      calls: int (n,), which execution of that address.
      times: float64 (n,), arrival in seconds since the epoch.
      mask: bool (n, *lanes), which lanes have run the step; None for all.
      arrays: the payloads, one part after the other, each (n, ...).
      sent: int (n,), how many events each row holds; None where that is `each`.
      each: how many events a row holds.
      parts: the payloads.
    """

    entry: Entry | PointEntry
    path: str
    steps: np.ndarray
    outer: np.ndarray
    calls: np.ndarray
    times: np.ndarray
    mask: np.ndarray | None
    arrays: tuple[np.ndarray, ...]
    sent: np.ndarray | None
    each: int
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @functools.cached_property
    def nbytes(self) -> int:
        """The memory that it holds. Of what all rows share, there is one."""
        columns = (self.steps, self.outer, self.calls, self.times, self.mask, self.sent, *self.arrays)
        return OVERHEAD_BYTES + sum(c.nbytes for c in columns if c is not None and (c.ndim == 0 or c.strides[0]))

    @property
    def count(self) -> int:
        """How many events it holds."""
        return self.each * len(self) if self.sent is None else int(self.sent.sum())

    @property
    def counts(self) -> np.ndarray:
        """How many events each row holds."""
        return np.broadcast_to(self.each, len(self)) if self.sent is None else self.sent

    def since(self, row: int) -> Block:
        """A copy of the rows from `row` on."""
        columns = {name: getattr(self, name) for name in ("steps", "outer", "calls", "times", "mask", "sent")}
        cut = {name: None if column is None else column[row:].copy() for name, column in columns.items()}
        return dataclasses.replace(self, arrays=tuple(array[row:].copy() for array in self.arrays), **cut)

    def only(self, wanted: Callable[[str], bool]) -> Block | None:
        """The payloads whose kinds are wanted; None where none is."""
        own = [(part, arrays) for part, arrays in self.by_part() if wanted(kind_of(part))]
        if len(own) == len(self.parts):
            return self
        if not own:
            return None
        parts = tuple(part for part, _ in own)
        arrays = tuple(array for _, arrays in own for array in arrays)
        block = dataclasses.replace(self, parts=parts, arrays=arrays, sent=None, each=0)
        sent = sum(np.bincount(block._events_of(part)[0], minlength=len(self)) for part in parts)
        return dataclasses.replace(block, **_sent(np.asarray(sent)))

    # --- Events one by one -----------------------------------------------------------------------------------

    def rows(self, start: int = 0) -> Iterator[list[TapEvent]]:
        """The events of each row, payload by payload and lane by lane, from a row on."""
        layout = [(part, arrays, list(np.ndindex(part.lanes))) for part, arrays in self.by_part()]
        for row, place in enumerate(self._places(start), start):
            yield [
                self._event(part, arrays, place, (row, *index))
                for part, arrays, lanes in layout
                for index in lanes
                if self.mask is None or np.any(self.mask[(row, *index)])
            ]

    def _places(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Step, call, time and outer steps of each row, as Python has them."""
        for first in range(start, len(self), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            columns = (self.steps[some], self.calls[some], self.times[some])
            yield from zip(*(c.tolist() for c in columns), map(tuple, self.outer[some].tolist()), strict=True)

    def by_part(self) -> Iterator[tuple[Part, tuple[np.ndarray, ...]]]:
        """Each payload with its arrays."""
        at = 0
        for part in self.parts:
            yield part, self.arrays[at : at + len(part.restores)]
            at += len(part.restores)

    def _event(self, part: Part, arrays: Any, place: tuple[Any, ...], index: tuple[int, ...]) -> TapEvent:
        step, call, time, outer = place
        return TapEvent(
            path=self.path,
            step=step,
            value=part.value(arrays, index),
            total=part.site.total,
            kind=kind_of(part),
            lane=part.lane(index[1:]),
            outer=outer,
            call=call,
            time=time,
            source=part.site.source,
            device=self.entry.device,
            process=self.entry.process,
        )

    # --- Events as columns -----------------------------------------------------------------------------------

    def chunks(self) -> list[TapChunk]:
        """The events of each payload, as columns. Their `order` is their place among the events of the block."""
        first = np.cumsum(self.counts) - self.counts
        found: list[TapChunk] = []
        for part, arrays in self.by_part():
            rows, lanes, picked = self._events_of(part)
            counts = np.bincount(rows, minlength=len(self)) if len(self.parts) > 1 or self.mask is not None else None
            order = None if counts is None else _places(first, counts)
            found.append(
                TapChunk(
                    path=self.path,
                    kind=kind_of(part),
                    total=part.site.total,
                    source=part.site.source,
                    device=self.entry.device,
                    process=self.entry.process,
                    steps=_taken(self.steps, rows, part),
                    outer=_taken(self.outer, rows, part),
                    calls=_taken(self.calls, rows, part),
                    times=_taken(self.times, rows, part),
                    lanes=lanes,
                    order=np.arange(len(rows)) if order is None else order,
                    form=part,
                    arrays=tuple(_flat(array, part, picked) for array in arrays),
                )
            )
            first = first if counts is None else first + counts
        return found

    def _events_of(self, part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The row and lane of each event of a payload, and which these are of all rows and lanes; None for all."""
        n, size = len(self), math.prod(part.lanes)
        every = np.indices(part.lanes).reshape(len(part.lanes), size).T
        if part.ids is not None:
            every = np.stack([np.array(ids)[every[:, axis]] for axis, ids in enumerate(part.ids)], axis=1)
        if self.mask is None:
            return np.repeat(np.arange(n), size), np.tile(every, (n, 1)), None
        picked = np.flatnonzero(self.mask.reshape(n * size, -1).any(axis=1))
        return picked // max(size, 1), every[picked % max(size, 1)], picked


def kind_of(part: Part) -> str:
    """The kind of the events of a payload."""
    return "backward" if part.site.kind == "cotangent" else part.site.kind


def block(placed: Placed) -> Block | None:
    """The rows that hold events; None where there are none."""
    chunk, entry, sent = placed.chunk, placed.chunk.entry, placed.sent
    keep = _keep(sent)
    if keep is None:
        return None
    assert chunk.times is not None
    is_loop = isinstance(entry, Entry)
    sent = sent[keep]
    return Block(
        entry=entry,
        path=placed.path,
        steps=chunk.steps[keep],
        outer=chunk.outer[keep] if is_loop else chunk.outer[keep, :-1],
        calls=placed.calls[keep],
        times=chunk.times[keep],
        mask=None if chunk.mask is None else chunk.mask[keep],
        arrays=tuple(array[keep] for array in chunk.arrays),
        **_sent(sent),
        parts=entry.parts,
    )


def _sent(sent: np.ndarray) -> dict[str, Any]:
    """How many events rows hold: one number where it is the same for all."""
    return {"sent": None if (sent == sent[0]).all() else sent.astype(np.int32), "each": int(sent[0])}


def _keep(sent: np.ndarray) -> Any:
    """What picks the rows that hold events: where it can be, a slice, which copies nothing."""
    kept = np.flatnonzero(sent)
    if not len(kept):
        return None
    first, last = int(kept[0]), int(kept[-1])
    return slice(first, last + 1) if last + 1 - first == len(kept) else kept


def _places(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Where events are: of each row, `counts` of them from `first` on."""
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def _taken(column: np.ndarray, rows: np.ndarray, part: Part) -> np.ndarray:
    """A column of rows for the events of a payload."""
    return column if not part.lanes and len(rows) == len(column) else column[rows]


def _flat(array: np.ndarray, part: Part, picked: np.ndarray | None) -> np.ndarray:
    """An array of rows and lanes for the events of a payload."""
    depth = 1 + len(part.lanes)
    flat = array.reshape(math.prod(array.shape[:depth]), *array.shape[depth:])
    return flat if picked is None or len(picked) == len(flat) else flat[picked]
