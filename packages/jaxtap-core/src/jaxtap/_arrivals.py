"""What has arrived and has not been looked at yet. Looking is put off: the program shall not wait."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

from jaxtap._chunks import Chunk, joined, stacked, timed
from jaxtap._emit import Entry, PointEntry, RingEntry

# A crossing as it arrived: its host end, the time, how many arrays were sent, and those.
Raw = tuple[Any, ...]

# How much may lie there before whoever brings more has to look at it.
MOST_BYTES = 32 << 20
# What a crossing takes besides its arrays, and each array besides its numbers.
_CROSSING_BYTES = 150
_ARRAY_BYTES = 120
# A flush of fewer rows and bytes is joined with others.
_FEW_ROWS = 2048
_FEW_BYTES = 1 << 16


class Arrivals:
    """Crossings and flushes in the order in which they came.

    Attributes:
      nbytes: roughly the memory that they take.
    """

    def __init__(self) -> None:
        # One after the other, not as tuples: those would make work for the garbage collector.
        self._raw: collections.deque[Any] = collections.deque()
        self._sizes: dict[Any, int] = {}
        self.nbytes = 0

    def put(self, raw: Raw) -> None:
        """A crossing."""
        self._raw.extend(raw)
        self.nbytes += self._sizes.get(raw[0]) or self._size(raw)

    def _size(self, raw: Raw) -> int:
        # All crossings of one entry are of one size.
        arrays = [getattr(array, "nbytes", 0) for array in raw[3:]]
        size = self._sizes[raw[0]] = _CROSSING_BYTES + sum(arrays) + _ARRAY_BYTES * len(arrays)
        return size

    def put_chunks(self, chunks: list[Chunk], now: float) -> None:
        """All that came with a flush."""
        self._raw.extend((chunks, now))
        self.nbytes += _size(chunks)

    def taken(self) -> Iterator[list[Chunk] | Raw]:
        """What came, in order: rows that came one after the other together, with their order; other crossings as such.

        Several threads may bring more meanwhile, but only one may take.
        """
        self.nbytes = 0
        gathered = _Gathered()
        take = self._raw.popleft
        last, add = None, None
        while self._raw:
            first, now = take(), take()
            if first is not last or add is None:
                last, add = first, None
                if isinstance(first, list):
                    yield from _flush(gathered, first, now)
                    continue
                if isinstance(first, RingEntry) or not isinstance(first, (Entry, PointEntry)):
                    yield from gathered.given_up()
                    count = take()
                    yield (first, now, count, *(take() for _ in range(count)))
                    continue
                add = gathered.adder(first)
            add(now, [take() for _ in range(take())])
        yield from gathered.given_up()


def _size(chunks: list[Chunk]) -> int:
    """Roughly the memory that a flush takes."""
    return sum(array.nbytes + _ARRAY_BYTES for chunk in chunks for array in chunk.arrays)


def _flush(gathered: _Gathered, chunks: list[Chunk], now: float) -> Iterator[list[Chunk]]:
    """Gather all that came with a flush. Where that is much there is no need to copy it once more."""
    much = sum(map(len, chunks)) >= _FEW_ROWS or _size(chunks) >= _FEW_BYTES
    if much:
        yield from gathered.given_up()
    gathered.add_flush(chunks, now)
    if much:
        yield from gathered.given_up()


class _Gathered:
    """Rows that came one after the other, by what they are of."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._singles: dict[Any, tuple[list[Any], list[int], list[float]]] = {}
        self._chunks: dict[Any, list[Chunk]] = {}
        self._rows = 0

    def adder(self, entry: Any) -> Callable[[float, list[Any]], None]:
        """What takes single crossings of one entry, one after the other."""
        crossings, order, times = self._singles.setdefault(entry, ([], [], []))

        def add(now: float, arrays: list[Any]) -> None:
            crossings.append(arrays)
            order.append(self._rows)
            times.append(now)
            self._rows += 1

        return add

    def add_flush(self, chunks: list[Chunk], now: float) -> None:
        """All that came with a flush."""
        first = self._rows
        for chunk in timed(chunks, now, first):
            self._chunks.setdefault(chunk.entry, []).append(chunk)
            self._rows = max(self._rows, int(chunk.places[-1]) + 1)

    def given_up(self) -> Iterator[list[Chunk]]:
        """What was gathered, which is forgotten."""
        found = [joined(chunks) for chunks in self._chunks.values()]
        found += [stacked(entry, *columns) for entry, columns in self._singles.items()]
        self._clear()
        if found:
            yield found
