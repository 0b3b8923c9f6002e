"""The crossing of many rows at once: how a row is packed on the device, and what the host makes of a flush."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core as jcore
from jax.interpreters import mlir

from jaxtap import _emit
from jaxtap._chunks import Chunk
from jaxtap._emit import Entry, PointEntry
from jaxtap._jaxprs import EFFECT
from jaxtap._pace import Pace

# More rows than that make nothing cheaper: a flush is a hundredth of what they cost.
MOST_ROWS = 1024


def fits(entry: Any, avals: Sequence[Any]) -> bool:
    """Whether what a host end receives can wait in a buffer."""
    if not isinstance(entry, (Entry, PointEntry)) or not entry.waits:
        return False
    return _bytes(avals) * 2 <= entry.key.view.buffer_bytes


def _bytes(avals: Sequence[Any]) -> int:
    return sum(aval.size * aval.dtype.itemsize for aval in avals)


class Slot:
    """One buffer: rows of what one host end receives, packed by dtype.

    Attributes:
      entry: the host end.
      number: which of the buffers of its program it is.
      rows: how many there is room for.
      row_bytes: how much memory a row takes.
      columns: dtype and width of each array that the rows are kept in.
    """

    def __init__(self, entry: Entry | PointEntry, avals: Sequence[Any], number: int, rows: int = 1) -> None:
        self.entry, self.number, self.rows = entry, number, rows
        # In front of what a crossing carries stands the place of the row in the order of all rows.
        avals = [ShapedArray((), np.dtype(np.int32)), *avals]
        self.row_bytes = _bytes(avals)
        self._shapes = [tuple(aval.shape) for aval in avals]
        self._groups: dict[Any, list[tuple[int, int]]] = collections.defaultdict(list)
        for i, aval in enumerate(avals):
            self._groups[np.dtype(aval.dtype)].append((i, int(aval.size)))
        self.columns = [(dtype, sum(size for _, size in group)) for dtype, group in self._groups.items()]

    def packed(self, operands: Sequence[Any]) -> list[Any]:
        """A row."""
        flat = [jnp.ravel(jnp.asarray(operand)) for operand in operands]
        return [jnp.concatenate([flat[i] for i, _ in group]) for group in self._groups.values()]

    def unpacked(self, rings: Sequence[np.ndarray], used: int) -> list[np.ndarray]:
        """The rows in use: each operand, with an axis of rows in front."""
        found: dict[int, np.ndarray] = {}
        for ring, group in zip(rings, self._groups.values(), strict=True):
            rows, at = ring[:used].copy(), 0
            for i, size in group:
                found[i] = rows[:, at : at + size].reshape(used, *self._shapes[i])
                at += size
        return [found[i] for i in range(len(self._shapes))]


class Flush:
    """The host end of the flushes of one loop: hands on what has come, and says when it wants to hear again."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        fixed = [slot.entry.key.view.buffer for slot in slots if slot.entry.key.view.buffer is not None]
        self._pace = Pace(min(fixed, default=None))

    @property
    def first(self) -> int:
        """How many trips until the first flush."""
        return self._pace.first

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, flushes: Any, trips: Any, _: Any, __: Any, *arrays: np.ndarray) -> tuple[Any]:
        """Receive a flush."""
        interval = 1
        try:
            interval = self._pace.after(int(trips), first=int(flushes) == 0)
            self._hand_on(arrays)
            self._pace.goes_on()
        except BaseException as error:  # noqa: BLE001 - it is raised again if it is the program's
            _emit.failed(error)
        return (np.int32(interval),)

    def _hand_on(self, arrays: Sequence[np.ndarray]) -> None:
        now, at = _emit.now(), len(self._slots)
        found: dict[int, list[Chunk]] = collections.defaultdict(list)
        for slot, used in zip(self._slots, arrays, strict=False):
            rings = arrays[at : at + len(slot.columns)]
            at += len(slot.columns)
            if used:
                found[id(slot.entry.key)].append(chunk(slot.entry, slot.unpacked(rings, int(used))))
        for chunks in found.values():
            take = chunks[0].entry.key.take_chunks
            if take is not None:
                take(chunks, now)


def chunk(entry: Entry | PointEntry, operands: Sequence[np.ndarray]) -> Chunk:
    """Rows as they are kept: what single crossings would have carried, one after the other."""
    order, *rest = operands
    first, steps = ([], rest) if isinstance(entry, PointEntry) else (rest[:1], rest[1:])
    depth = entry.num_scalars - len(first)
    outer = np.stack(steps[:depth], axis=1) if depth else np.zeros((len(order), 0), np.int32)
    at, mask, events = depth, None, None
    if entry.masked:
        mask, at = steps[at], at + 1
    if entry.masked and first:
        events, at = steps[at], at + 1
    counts = first[0] if first else np.zeros(len(order), np.int32)
    return Chunk(entry, counts, outer, mask, events, list(steps[at:]), order)


flush_p = jcore.Primitive("jaxtap_flush")
flush_p.multiple_results = True


@flush_p.def_effectful_abstract_eval
def _abstract_eval(*_: Any, **__: Any) -> tuple[list[Any], set[Any]]:
    return [ShapedArray((), np.dtype(np.int32))], {EFFECT}


def _lower(ctx: Any, *values: Any, flush: Flush) -> Any:
    results, _, _ = mlir.emit_python_callback(
        ctx, flush.__call__, None, list(values), ctx.avals_in, ctx.avals_out, has_side_effect=True
    )
    return results


mlir.register_lowering(flush_p, _lower)
