"""What arrives: rows of one loop or point, stacked. A single crossing is a row, a flush brings many at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxtap._emit import Entry, PointEntry


@dataclasses.dataclass
class Chunk:
    """Rows of one loop, equation or marked value, each what a single crossing carries.

    Attributes:
      entry: static knowledge of the loop and of the payload.
      counts: int (n,). Of a loop: steps done after the row's step, negative if it was the last one; a row whose step is
        not sampled (`step % entry.sample_every != 0`) carries no event and only closes the loop. Not looked at
        for a point.
      outer: int (n, depth), steps of the enclosing loops, outermost first. Of a point, of all loops around it.
      mask: bool (n, *lanes), which lanes have run the step; None for all.
      events: int (n,), under a mask: how many events each payload of the loop has sent so far; None for a point.
      arrays: the payloads, one part after the other, each (n, ...). Owned: no one else writes to them.
      order: int (n,), ascending: the place of each row among all rows that came with the same flush; None where there
        is only one chunk.
      times: float64 (n,), arrival in seconds since the epoch; the lens sets it.
    """

    entry: Entry | PointEntry
    counts: np.ndarray
    outer: np.ndarray
    mask: np.ndarray | None
    events: np.ndarray | None
    arrays: list[np.ndarray]
    order: np.ndarray | None = None
    times: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def places(self) -> np.ndarray:
        """The order, once it is known."""
        assert self.order is not None
        return self.order

    @property
    def steps(self) -> np.ndarray:
        """The step of each row, -1 outside of any loop."""
        if isinstance(self.entry, Entry):
            return np.abs(self.counts) - 1
        return self.outer[:, -1] if self.outer.shape[1] else np.full(len(self), -1)

    @property
    def sent(self) -> np.ndarray:
        """How many events each row holds."""
        entry, n = self.entry, len(self)
        if isinstance(entry, PointEntry):
            return _events(self.mask, entry.parts[0].lanes, 1, 0, n)
        if not entry.parts:
            return np.zeros(n, np.int64)
        sent = _events(self.mask, entry.lanes, len(entry.parts) - entry.shared, entry.shared, n)
        steps = self.steps
        return sent * ((steps >= 0) & (steps % entry.sample_every == 0))

    @property
    def closes(self) -> np.ndarray:
        """Which rows are of a loop's last step."""
        assert isinstance(self.entry, Entry)
        total = self.entry.site.total
        return self.counts <= 0 if total is None else (self.counts <= 0) | (self.counts == total)


def _events(mask: np.ndarray | None, lanes: tuple[int, ...], each: int, once: int, n: int) -> np.ndarray:
    """How many events rows hold: `each` of every lane that has run, and `once` of all of them."""
    if mask is None:
        return np.full(n, each * math.prod(lanes) + once)
    ran = mask.sum(axis=tuple(range(1, mask.ndim)))
    return np.where(ran > 0, each * (ran if lanes else 1) + once, 0)


# --- Single crossings ----------------------------------------------------------------------------------------


def stacked(entry: Entry | PointEntry, crossings: Sequence[Any], order: Sequence[int], times: Sequence[float]) -> Chunk:
    """Single crossings of one entry as a chunk.

    Args:
      entry: static knowledge.
      crossings: what each of them carried.
      order: their places among others.
      times: when they arrived.
    """
    columns: list[Any] = list(zip(*crossings, strict=True))
    n = len(crossings)
    if isinstance(entry, Entry):
        counts, depth = _integers(columns.pop(0)), entry.num_outer
    else:
        counts, depth = np.zeros(n, np.int32), entry.num_steps
    outer = [_integers(column) for column in columns[:depth]]
    del columns[:depth]
    return Chunk(
        entry=entry,
        counts=counts,
        outer=np.stack(outer, axis=1) if outer else np.empty((n, 0), np.int32),
        mask=_stack(columns.pop(0)) if entry.masked else None,
        events=_integers(columns.pop(0)) if entry.masked and isinstance(entry, Entry) else None,
        arrays=[_stack(column) for column in columns],
        order=np.array(order),
        times=np.array(times),
    )


def _integers(column: Sequence[Any]) -> np.ndarray:
    return np.fromiter(map(int, column), np.int32, len(column))


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    # Of many small arrays, by far the quickest way to stack them.
    first = arrays[0]
    raw = bytearray().join([array.tobytes() for array in arrays])
    return np.frombuffer(raw, first.dtype).reshape(len(arrays), *first.shape)


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Chunks of one entry, one after the other, as one."""
    if len(chunks) == 1:
        return chunks[0]
    first = chunks[0]

    def column(name: str) -> Any:
        parts: list[Any] = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    names = ("counts", "outer", "mask", "events", "order", "times")
    arrays = [np.concatenate(parts) for parts in zip(*(chunk.arrays for chunk in chunks), strict=True)]
    return Chunk(first.entry, arrays=arrays, **{name: column(name) for name in names})


def timed(chunks: Iterable[Chunk], now: float, first: int) -> list[Chunk]:
    """The chunks of one flush, with times, and places from `first` on."""
    return [
        dataclasses.replace(
            chunk,
            order=(np.arange(len(chunk)) if chunk.order is None else chunk.order) + first,
            # All rows share one number.
            times=np.broadcast_to(np.float64(now), len(chunk)),
        )
        for chunk in chunks
        if len(chunk)
    ]
