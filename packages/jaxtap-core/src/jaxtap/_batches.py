"""What arrived together, in the order in which it happened."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from jaxtap._accounts import Placed
from jaxtap._blocks import AT_ONCE, OVERHEAD_BYTES, Block, block
from jaxtap._events import TapEvent
from jaxtap._tap_chunk import TapChunk


class Batch:
    """Events of one flush, in the order in which they happened: rows of several loops take turns.

    Attributes:
      blocks: their columns.
      turns: int (n,), which of the blocks each row is of; None where there is one.
      count: how many events there are.
      nbytes: the memory that they take.
    """

    def __init__(self, blocks: Sequence[Block], turns: np.ndarray | None) -> None:
        self.blocks, self.turns = tuple(blocks), turns
        self.count = sum(block.count for block in blocks)
        self.nbytes = sum(block.nbytes for block in blocks) + (0 if turns is None else turns.nbytes)

    def __len__(self) -> int:
        return self.count

    def only(self, wanted: Callable[[str], bool]) -> Batch | None:
        """The events whose kinds are wanted; None where there are none."""
        own = [block.only(wanted) for block in self.blocks]
        if all(new is old for new, old in zip(own, self.blocks, strict=True)):
            return self
        return _of_those_left(own, self.turns)

    def events(self, start: int = 0) -> Iterator[TapEvent]:
        """The events from one on, one by one."""
        row, skipped = self._place(start) if start else (0, 0)
        return itertools.islice(itertools.chain.from_iterable(self._rows(row)), skipped, None)

    def rows(self) -> Iterator[tuple[Block, list[TapEvent]]]:
        """The events row by row, with the block that each is of."""
        turns = itertools.repeat(0) if self.turns is None else itertools.chain.from_iterable(self._turns(0))
        return ((self.blocks[turn], events) for events, turn in zip(self._rows(0), turns, strict=False))

    def _rows(self, start: int) -> Iterator[list[TapEvent]]:
        if self.turns is None:
            return self.blocks[0].rows(start)
        before = np.bincount(self.turns[:start], minlength=len(self.blocks)).tolist()
        rows = [block.rows(first) for block, first in zip(self.blocks, before, strict=True)]
        return (next(rows[turn]) for turn in itertools.chain.from_iterable(self._turns(start)))

    def _turns(self, start: int) -> Iterator[list[int]]:
        assert self.turns is not None
        for first in range(start, len(self.turns), AT_ONCE):
            yield self.turns[first : first + AT_ONCE].tolist()

    def _place(self, index: int) -> tuple[int, int]:
        """The row of an event, and its place within it."""
        if self.turns is None and self.blocks[0].sent is None:
            return divmod(index, self.blocks[0].each)
        ends = np.cumsum(self._counts)
        row = int(np.searchsorted(ends, index, side="right"))
        return row, index - int(ends[row] - self._counts[row])

    @property
    def _counts(self) -> np.ndarray:
        """How many events each row holds."""
        if self.turns is None:
            return self.blocks[0].counts
        counts = np.empty(len(self.turns), np.int64)
        for turn, own in enumerate(self.blocks):
            counts[self.turns == turn] = own.counts
        return counts

    def event(self, index: int) -> TapEvent:
        """One event."""
        return next(self.events(index))

    def chunks(self) -> list[TapChunk]:
        """The events as columns, with their places among those of the batch."""
        found = [(turn, chunk) for turn, own in enumerate(self.blocks) for chunk in own.chunks()]
        if self.turns is None:
            return [chunk for _, chunk in found]
        counts = self._counts
        starts = np.cumsum(counts) - counts
        shifts: list[np.ndarray] = []
        for turn, own in enumerate(self.blocks):
            # By how much the events of each row of a block move among those of the other blocks.
            at = np.cumsum(own.counts) - own.counts
            shifts.append(np.repeat(starts[self.turns == turn] - at, own.counts))
        return [_moved(chunk, shifts[turn]) for turn, chunk in found]

    def since(self, index: int) -> Batch:
        """A copy without the events before one, but for those of its row."""
        row, _ = self._place(index)
        if self.turns is None:
            return Batch([self.blocks[0].since(row)], None)
        before = np.bincount(self.turns[:row], minlength=len(self.blocks)).tolist()
        own = [
            block.since(first) if first < len(block) else None for block, first in zip(self.blocks, before, strict=True)
        ]
        found = _of_those_left(own, self.turns[row:])
        assert found is not None
        return found


def _of_those_left(blocks: Sequence[Block | None], turns: np.ndarray | None) -> Batch | None:
    """A batch of some of the blocks that took turns; None where none is left."""
    kept = [block for block in blocks if block is not None]
    if len(kept) < 2 or turns is None:
        return Batch(kept, None) if kept else None
    is_left = np.array([block is not None for block in blocks])
    numbers = np.cumsum(is_left) - 1
    return Batch(kept, numbers[turns[is_left[turns]]].astype(turns.dtype))


def _moved(chunk: TapChunk, shift: np.ndarray) -> TapChunk:
    return dataclasses.replace(chunk, order=chunk.order + shift[chunk.order])


def batch(placed: Sequence[Placed]) -> Batch | None:
    """What arrived together; None where it holds no events."""
    found = [(made, own) for own in placed if (made := block(own)) is not None]
    if len(found) < 2:
        return Batch([found[0][0]], None) if found else None
    order = np.concatenate([own.chunk.places[own.sent > 0] for _, own in found])
    which = np.repeat(np.arange(len(found)), [len(made) for made, _ in found])
    turns = which[np.argsort(order, kind="stable")]
    return Batch([made for made, _ in found], turns.astype(np.min_scalar_type(len(found))))


class Loose:
    """Events that have come one by one.

    Attributes:
      items: those.
    """

    MOST = 1024
    blocks = ()

    def __init__(self) -> None:
        self.items: list[TapEvent] = []
        self.nbytes = OVERHEAD_BYTES

    def __len__(self) -> int:
        return len(self.items)

    def append(self, event: TapEvent) -> int:
        """Take one more; returns the memory that it takes."""
        self.items.append(event)
        leaves = jax.tree_util.tree_leaves(event.value)
        size = 500 + sum(getattr(leaf, "nbytes", 50) for leaf in leaves)
        self.nbytes += size
        return size

    def events(self, start: int = 0) -> Iterator[TapEvent]:
        """The events from one on."""
        return itertools.islice(self.items, start, len(self.items))

    def event(self, index: int) -> TapEvent:
        """One event."""
        return self.items[index]
