"""The flight recorder: events in memory, as a sequence and as a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from jaxtap import _frame
from jaxtap._batches import Batch
from jaxtap._capacity import CapacitySpec, check_capacity
from jaxtap._compile_log import CompileLog
from jaxtap._events import EARLY_KINDS, KINDS, TapEvent
from jaxtap._guard import warn
from jaxtap._report import Report
from jaxtap._sinks import TakesBatches
from jaxtap._store import Store
from jaxtap._tap_chunk import TapChunk
from jaxtap._timeline import Timeline, timeline

if TYPE_CHECKING:
    import pandas as pd


class Events(Sequence[TapEvent]):
    """The events of a recorder, oldest first, in the order of arrival. Grows while the program runs.

    Events are kept as columns. Each is made when it is asked for, and again when it is asked for again.
    """

    def __init__(self, recorder: FlightRecorder) -> None:
        self.recorder = recorder

    def __len__(self) -> int:
        return self.recorder.count()

    @overload
    def __getitem__(self, index: int) -> TapEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[TapEvent]: ...
    def __getitem__(self, index: int | slice) -> TapEvent | list[TapEvent]:
        return self.recorder.slice(index) if isinstance(index, slice) else self.recorder.event(index)

    def __iter__(self) -> Iterator[TapEvent]:
        return self.recorder.since(0)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (Events, list)) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as for a list

    def __repr__(self) -> str:
        return repr(list(self))


class FlightRecorder(TakesBatches):
    """Keeps events in memory.

    `jaxtap.record` makes one and fills it. It can also be handed to `jaxtap.verbose` as `on_step`.

    The newest events are kept: up to a number, if one is given, and within 1 GiB of memory, unless another amount is
    given.

    Args:
      capacity: how much is kept: a number of events, an amount of memory such as `"4GiB"` or `"500 MB"`, or both as a
        tuple. None keeps any number of events.

    Attributes:
      account: gives the report of the lens that fills this recorder.
      feed: lets that lens hand over what has arrived.
      compiles: with `trace=True`, the programs that were compiled; otherwise empty.

    Raises:
      ValueError: if `capacity` is less than 1, or none of these.

    >>> recorder = FlightRecorder(capacity=2)
    >>> for step in range(3):
    ...     recorder(TapEvent("scan[0]", step, 0.5))
    >>> [event.step for event in recorder.events], recorder.dropped
    ([1, 2], 1)
    """

    def __init__(self, capacity: CapacitySpec = None) -> None:
        self.capacity = capacity
        self._lock = threading.RLock()
        self._store = Store(check_capacity(capacity))
        self.account: Callable[[], Report] = lambda: Report(attached=False, dropped=self.dropped)
        self.feed: Callable[[], None] = lambda: None
        self.compiles = CompileLog()

    @property
    def events(self) -> Events:
        """The events kept, oldest first: a sequence."""
        return Events(self)

    @property
    def dropped(self) -> int:
        """How many events were dropped to keep within `capacity`."""
        self.feed()
        return self._store.dropped

    def __call__(self, event: TapEvent) -> None:
        """Keep an event."""
        self.add(event)

    def write(self, chunk: TapChunk) -> None:
        """Keep many events at once, as a `Sink`."""
        for event in chunk.events():
            self.add(event)

    def add(self, item: Batch | TapEvent) -> None:
        """Keep events that arrived together, or a single one."""
        with self._lock:
            first = not self._store.dropped
            self._store.append(item)
            first = first and bool(self._store.dropped)
        if first:
            bound = "1 GiB, unless capacity= says more" if self.capacity is None else f"capacity={self.capacity!r}"
            warn(f"jaxtap: the recorder is full ({bound}); it keeps the newest events and counts `dropped`.")

    def count(self) -> int:
        """How many events are kept."""
        self.feed()
        return len(self._store)

    def event(self, index: int) -> TapEvent:
        """One of the events kept.

        Raises:
          IndexError: if there is none at that index.
        """
        self.feed()
        with self._lock:
            return self._store.event(index)

    def slice(self, index: slice) -> list[TapEvent]:
        """Some of the events kept."""
        self.feed()
        with self._lock:
            chosen = range(*index.indices(len(self._store)))
            if not chosen:
                return []
            if chosen.step == 1:
                own = self._store.since(chosen.start)
                return [event for event, _ in zip(own, chosen, strict=False)]
            return [self._store.event(i) for i in chosen]

    def since(self, index: int) -> Iterator[TapEvent]:
        """The events kept from one on, as they are now."""
        self.feed()
        with self._lock:
            return self._store.since(index)

    def drain(self) -> list[TapEvent]:
        """The events kept, oldest first, which the recorder then forgets."""
        self.feed()
        with self._lock:
            taken = self._store.since(0)
            self._store.clear()
        return list(taken)

    def clear(self) -> None:
        """Forget all events, and the count of dropped ones."""
        self.feed()
        with self._lock:
            self._store.clear()
            self._store.dropped = 0

    def report(self) -> Report:
        """What was seen and what was not: loops, events expected and delivered, failures."""
        return self.account()

    def timeline(self) -> Timeline:
        """Where the time goes: trace, lowering, compile, then each outermost loop, with a forecast while it runs.

        Stations are there for a recording with `trace=True`. May be asked for at any time, also by `on_step`.
        """
        return timeline(self.compiles, self.segments(lambda kind, _: kind not in EARLY_KINDS)[0])

    def df(self, *, kind: str | None = None, path: str | None = None) -> pd.DataFrame:
        """The events as a table, one row an event.

        Columns: `path`, `kind`, `step`, `total`, `lane` and `outer` (one column for each mapped axis and each
        enclosing loop where there are several), `call`, `time` (seconds since the epoch), `device` and `process` where
        there is more than one, then each selected leaf by its name. A selector of one's own gives `value` for a bare
        value, `value_0`, `value_1`, ... for a tuple, and the keys of a dictionary. Scalars are Python scalars, larger
        leaves stay arrays.

        Args:
          kind: only events of this kind: `"carry"`, `"output"`, `"primitive"`, `"mark"`, `"backward"`, `"trace"` or
            `"compile"`. None leaves out the last two, whose values are words.
          path: only events of this address.

        Raises:
          ImportError: without pandas.
          ValueError: if no event can have that kind.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - an extra: importing jaxtap must not need it
        except ImportError as error:
            raise ImportError(
                "FlightRecorder.df() needs pandas: pip install 'jaxtap-core[pandas]'. Without it, iterate over "
                "recorder.events."
            ) from error
        if kind not in (None, *KINDS):
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, or None; got {kind!r}.")
        kinds = [k for k in KINDS if k not in EARLY_KINDS] if kind is None else [kind]
        found, rows = self.segments(lambda k, p: k in kinds and path in (None, p))
        return pd.DataFrame(_frame.table(pd, found, rows), copy=False)

    def segments(self, wanted: _frame.Wanted) -> tuple[list[_frame.Segment], int]:
        """The events whose kind and address are wanted, as columns, and how many these are."""
        self.feed()
        with self._lock:
            batches, skipped = list(self._store.batches), self._store.skipped
        return _frame.segments(batches, skipped, wanted)

    def __repr__(self) -> str:
        return f"<FlightRecorder: {self.count()} events, {self.dropped} dropped>"
