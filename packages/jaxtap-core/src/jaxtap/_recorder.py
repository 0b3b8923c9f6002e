"""The flight recorder: events in memory, as a sequence and as a table."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from jaxtap._compile_log import CompileLog
from jaxtap._config import check_count
from jaxtap._events import EARLY_KINDS, KINDS, TapEvent
from jaxtap._guard import warn
from jaxtap._records import Record
from jaxtap._report import Report
from jaxtap._table import rows
from jaxtap._timeline import Timeline, timeline

if TYPE_CHECKING:
    import pandas as pd


class Events(Sequence[TapEvent]):
    """The events of a recorder, oldest first, in the order of arrival. Grows while the program runs."""

    def __init__(self, recorder: FlightRecorder) -> None:
        self._recorder = recorder

    def __len__(self) -> int:
        return len(self._recorder.named())

    @overload
    def __getitem__(self, index: int) -> TapEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[TapEvent]: ...
    def __getitem__(self, index: int | slice) -> TapEvent | list[TapEvent]:
        found = self._recorder.named()[index]
        return [event for event, _ in found] if isinstance(found, list) else found[0]

    def __iter__(self) -> Iterator[TapEvent]:
        return iter([event for event, _ in self._recorder.named()])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (Events, list)) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as for a list

    def __repr__(self) -> str:
        return repr(list(self))


class FlightRecorder:
    """Keeps events in memory.

    `jaxtap.record` makes one and fills it. It can also be handed to `jaxtap.verbose` as `on_step`.

    Args:
      capacity: keep only the newest this many events; None keeps all.

    Attributes:
      account: gives the report of the lens that fills this recorder.
      feed: lets that lens hand over what has arrived.
      compiles: with `trace=True`, the programs that were compiled; otherwise empty.

    Raises:
      ValueError: if `capacity` is less than 1.

    >>> recorder = FlightRecorder(capacity=2)
    >>> for step in range(3):
    ...     recorder(TapEvent("scan[0]", step, 0.5))
    >>> [event.step for event in recorder.events], recorder.dropped
    ([1, 2], 1)
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = None if capacity is None else check_count("capacity", capacity, 1, "events kept")
        self._lock = threading.RLock()
        self._pending: collections.deque[Record | TapEvent] = collections.deque()
        self._events: list[tuple[TapEvent, tuple[str, ...] | None]] = []
        self._count = 0
        self._dropped = 0
        self.account: Callable[[], Report] = lambda: Report(attached=False, dropped=self._dropped)
        self.feed: Callable[[], None] = lambda: None
        self.compiles = CompileLog()

    @property
    def events(self) -> Events:
        """The events kept, oldest first: a sequence."""
        return Events(self)

    @property
    def dropped(self) -> int:
        """How many events were dropped to keep within `capacity`."""
        return self._dropped

    def __call__(self, event: TapEvent) -> None:
        """Keep an event."""
        self.add(event, 1)

    def add(self, item: Record | TapEvent, count: int) -> None:
        """Keep a crossing of `count` events, or a single event."""
        if self.capacity is None:
            self._pending.append(item)
            self._count += count
            return
        with self._lock:
            self._pending.append(item)
            self._count += count
            first = not self._dropped
            if self._count > self.capacity:
                self._drop(self._count - self.capacity)
        if first and self._dropped:
            warn(f"jaxtap: the recorder is full (capacity={self.capacity}); it keeps the newest and counts `dropped`.")

    def _drop(self, count: int) -> None:
        """Drop the oldest events."""
        if len(self._events) < count:
            self.named()
        del self._events[:count]
        self._count -= count
        self._dropped += count

    def named(self) -> list[tuple[TapEvent, tuple[str, ...] | None]]:
        """The events kept, each with the names of its columns."""
        self.feed()
        with self._lock:
            while self._pending:
                item = self._pending.popleft()
                if isinstance(item, TapEvent):
                    self._events.append((item, None))
                else:
                    self._events.extend(item.named_events())
            return self._events

    def drain(self) -> list[TapEvent]:
        """The events kept, oldest first, which the recorder then forgets."""
        with self._lock:
            taken = [event for event, _ in self.named()]
            self._events.clear()
            self._count -= len(taken)
        return taken

    def clear(self) -> None:
        """Forget all events, and the count of dropped ones."""
        self.feed()
        with self._lock:
            self._pending.clear()
            self._events.clear()
            self._count = self._dropped = 0

    def report(self) -> Report:
        """What was seen and what was not: loops, events expected and delivered, failures."""
        return self.account()

    def timeline(self) -> Timeline:
        """Where the time goes: trace, lowering, compile, then each outermost loop, with a forecast while it runs.

        Stations are there for a recording with `trace=True`. May be asked for at any time, also by `on_step`.
        """
        return timeline(self.compiles, [event for event, _ in list(self.named())])

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
        return pd.DataFrame(rows((e, n) for e, n in list(self.named()) if e.kind in kinds and path in (None, e.path)))

    def __repr__(self) -> str:
        self.feed()
        return f"<FlightRecorder: {self._count} events, {self._dropped} dropped>"
