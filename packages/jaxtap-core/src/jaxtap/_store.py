"""Events kept in memory, oldest first, within bounds. Appending copies nothing that is there."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator

from jaxtap._batches import Batch, Loose
from jaxtap._capacity import Capacity
from jaxtap._events import TapEvent


class Store:
    """Keeps what arrived, a batch at a time. Not locked: the recorder holds its lock.

    Attributes:
      batches: what is kept.
      nbytes: the memory that it takes.
      dropped: how many events were dropped to keep within the bounds.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._most_events, self._most_bytes = capacity
        self.dropped = 0
        self.clear()

    def clear(self) -> None:
        """Forget all events."""
        self.batches: list[Batch | Loose] = []
        # How many events there have been up to the end of each batch, and before the first that is kept.
        self._ends: list[int] = []
        self._first = 0
        self._gone = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return (self._ends[-1] if self._ends else self._first) - self._first

    def append(self, item: Batch | TapEvent) -> None:
        """Keep what arrived; what is oldest may have to go."""
        end = self._first + len(self)
        if isinstance(item, Batch):
            self.batches.append(item)
            self._ends.append(end + len(item))
            self.nbytes += item.nbytes
        else:
            self._append_event(item, end)
        self._drop()

    def _append_event(self, event: TapEvent, end: int) -> None:
        last = self.batches[-1] if self.batches else None
        if not isinstance(last, Loose) or len(last) >= Loose.MOST:
            last = Loose()
            self.batches.append(last)
            self._ends.append(end)
            self.nbytes += last.nbytes
        self._ends[-1] += 1
        self.nbytes += last.append(event)

    # --- Reading ---------------------------------------------------------------------------------------------

    def event(self, index: int) -> TapEvent:
        """One event, by its place among those that are kept.

        Raises:
          IndexError: if there is none.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} events; got index {index}.")
        at = self._first + (index if index >= 0 else index + len(self))
        i = bisect.bisect_right(self._ends, at)
        return self.batches[i].event(at - self._start(i))

    def since(self, index: int) -> Iterator[TapEvent]:
        """The events from one on, as they are now."""
        at = self._first + index
        i = bisect.bisect_right(self._ends, at)
        if i == len(self._ends):
            return iter(())
        count, batches, skipped = self._first + len(self) - at, self.batches[i:], at - self._start(i)
        own = (batch.events(skipped if n == 0 else 0) for n, batch in enumerate(batches))
        return itertools.islice(itertools.chain.from_iterable(own), count)

    def _start(self, i: int) -> int:
        """How many events there have been before a batch."""
        return self._ends[i] - len(self.batches[i])

    @property
    def skipped(self) -> int:
        """How many events of the first batch are not kept any more."""
        return self._first - self._start(0) if self.batches else 0

    # --- Bounds ----------------------------------------------------------------------------------------------

    def _drop(self) -> None:
        if self._most_events is not None and len(self) > self._most_events:
            self._drop_before(self._ends[-1] - self._most_events)
        if self.nbytes <= self._most_bytes:
            return
        whole, over = 0, self.nbytes - self._most_bytes
        while over > 0 and whole < len(self.batches) - 1:
            over -= self.batches[whole].nbytes
            whole += 1
        if whole:
            self._drop_before(self._ends[whole - 1])
        if over > 0:
            self._cut()

    def _drop_before(self, place: int) -> None:
        """Drop the events before a place, counted from the first that there ever was."""
        self.dropped += place - self._first
        self._first = place
        whole = bisect.bisect_right(self._ends, place)
        if whole:
            self.nbytes -= sum(batch.nbytes for batch in self.batches[:whole])
            del self.batches[:whole], self._ends[:whole]

    def _cut(self) -> None:
        """Keep as much of the one batch that is left as fits."""
        (last,) = self.batches
        share = max(1, int(len(last) * self._most_bytes / max(1, last.nbytes)))
        self._drop_before(max(self._first, self._ends[-1] - share))
        if isinstance(last, Batch):
            kept = last.since(self._first - self._start(0))
            self.batches[0] = kept
        else:
            kept = Loose()
            for event in last.events(self._first - self._start(0)):
                kept.append(event)
            self.batches[0] = kept
        self.nbytes = kept.nbytes
