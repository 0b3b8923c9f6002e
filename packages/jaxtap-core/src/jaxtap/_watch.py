"""A lens together with hooks on a library, for the time that it is open; what it sees becomes rows."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from jaxtap import _patches
from jaxtap._api import Recording, wrapped
from jaxtap._config import Host, View, check_count
from jaxtap._events import TapEvent
from jaxtap._guard import Guard, say, warn
from jaxtap._lens import Lens
from jaxtap._lines import alert_line
from jaxtap._patches import Patch
from jaxtap._recorder import FlightRecorder
from jaxtap._report import Report
from jaxtap._router import settle
from jaxtap._rows import Between, Columns, Row, Rows, table
from jaxtap._sinks import TakesBatches
from jaxtap._tripwires import Panel, Trip, Tripwire
from jaxtap._types import OnEvent

if TYPE_CHECKING:
    import pandas as pd


# How long rows may wait to be judged together: for the processor, a row alone is as dear as several. Of the 50 ms in
# which what has happened is told, this leaves 20 to whatever else delays it.
WITHIN_S = 0.03


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a watch looks at, and what it makes of it.

    Attributes:
      name: what it is called in messages, such as `"watch_warmup"`.
      view: the device-side configuration of its lens. Its `hooks` keep what is compiled under it apart from what other
        lenses compile, and are what `hook_settings` and `mark_for` ask for.
      columns: what an event adds to its row.
      looked_for: ends the sentence "it looked for ...", said where nothing was seen.
      patches: makes what is replaced in the library while the watch is open.
      around: makes a context of the library's own to be in while the watch is open in this thread.
      events_per_row: how many events tell of a step; with more than 1, the loop's own events and those of marked values
        in it make one row.
      first: columns that every table has, before all others.
      merges: whether values, by column, are of the row before, as another device has seen it; then it takes them up.
      split: from an event to those it stands for, as where a state holds all chains itself.
      between: whether a row is of a step that is not sent regularly, but was since a tripwire fires in it. Tripwires
        that need the rows before pass over it, and nothing else of its step is waited for.
    """

    name: str
    view: View
    columns: Columns
    looked_for: str
    patches: Callable[[], Sequence[Patch]] = tuple
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    events_per_row: int = 1
    first: tuple[str, ...] = ()
    merges: Callable[[Row, Mapping[str, Any]], bool] | None = None
    split: Callable[[TapEvent], Iterable[TapEvent]] | None = None
    between: Between | None = None


@dataclasses.dataclass(frozen=True)
class Choices:
    """What a user chooses of a watch that changes nothing on the device.

    Attributes:
      tripwires: what is looked for in the rows, live.
      on_event: called on the host with each event, on a thread of jaxtap's own.
      on_row: called on the host with each complete row, likewise.
      capacity: keep only the newest this many rows; None keeps all.
      threads: `"own"` sees the thread that opened it, `"all"` every thread.

    Raises:
      ValueError: if `capacity` is less than 1.
    """

    tripwires: tuple[Tripwire, ...] = ()
    on_event: OnEvent | None = None
    on_row: Callable[[Row], object] | None = None
    capacity: int | None = None
    threads: str = "own"

    def __post_init__(self) -> None:
        if self.capacity is not None:
            check_count("capacity", self.capacity, 1, "rows kept")

    @property
    def live(self) -> bool:
        """Whether anything waits for rows or events as they come."""
        return bool(self.tripwires) or self.on_event is not None or self.on_row is not None


class _Arrived(TakesBatches):
    """Is told that something has arrived, once for all that came together; no event is made for it."""

    within_s = WITHIN_S

    def __init__(self, take: Callable[[], None]) -> None:
        self._take = take

    def add(self, item: object) -> None:
        """Take what the recorder has."""
        del item
        self._take()

    write = add


class Watch:
    """A lens with hooks on a library: a context, to be entered again and again, or called with a function to wrap.

    Attributes:
      trips: tripwires that have fired, in order.
    """

    def __init__(self, plan: Plan, choices: Choices = Choices()) -> None:
        self._plan, self._choices = plan, choices
        self._recorder = FlightRecorder()
        self._rows = Rows(plan.columns, plan.events_per_row, choices.capacity, plan.merges, plan.between)
        self._guard = Guard()
        self._look = Panel(choices.tripwires, functools.partial(self._guard.failed, "a tripwire"))
        self._lock = threading.RLock()
        self._recording: Recording | None = None
        self._hooks = contextlib.ExitStack()
        self.trips: list[Trip] = []

    @property
    def tripwires(self) -> tuple[Tripwire, ...]:
        """What is looked for in the rows."""
        return self._choices.tripwires

    @property
    def _host(self) -> Host:
        waiting = _Arrived(self._take) if self._choices.on_event is None else self._on_event
        return Host(on_step=waiting if self._choices.live else None)

    def __enter__(self) -> Any:
        if self._recording is not None:
            raise RuntimeError(f"this {self._plan.name} is open already; make another one.")
        self._before = self._rows.count
        self._recording = Recording(self._plan.view, self._host, self._recorder, self._choices.threads == "all")
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "_recording", None)
            stack.enter_context(self._patched())
            self._recording.__enter__()
            self._hooks = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        self._hooks.close()
        recording.__exit__(kind, error, traceback)
        self._settled(self._before, error is not None)

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """A function that returns what `f` does, watched when it is called, and where it was compiled into another."""
        lens = Lens(self._plan.view, self._host, self._recorder)

        @functools.wraps(f)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            with self._patched():
                return f(*args, **kwargs)

        watched = wrapped(hooked, lens)

        @functools.wraps(f)
        def g(*args: Any, **kwargs: Any) -> Any:
            before = self._rows.count
            result = watched(*args, **kwargs)
            if not any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves(result)):
                self._settled(before, False)
            return result

        return g

    @contextlib.contextmanager
    def _patched(self) -> Generator[None]:
        patches = tuple(self._plan.patches())
        _patches.install(patches)
        try:
            with self._plan.around():
                yield
        finally:
            _patches.uninstall(patches)

    # --- As events come --------------------------------------------------------------------------------------

    def _on_event(self, event: TapEvent) -> None:
        """On jaxtap's own thread: something has arrived."""
        if self._choices.on_event is not None:
            self._guard.call("on_event", self._choices.on_event, event)
        self._take()

    def _take(self) -> None:
        """Make rows of what has arrived, be it one event or many."""
        with self._lock:
            for event in self._recorder.drain():
                try:
                    made = self._made(event)
                except Exception as error:  # noqa: BLE001 - telemetry never breaks the program
                    self._guard.failed("making a row", error)
                else:
                    for row in made:
                        self._complete(row)

    def _made(self, event: TapEvent) -> Sequence[Row]:
        if self._plan.split is None:
            return self._rows.add(event)
        return [row for each in self._plan.split(event) for row in self._rows.add(each)]

    def _complete(self, row: Row) -> None:
        for trip in self._look(row):
            self.trips.append(trip)
            say(alert_line(trip.row, trip.message))
        if self._choices.on_row is not None:
            self._guard.call("on_row", self._choices.on_row, row)

    def _settled(self, before: int, failed: bool) -> None:
        """The program has ended: no more events of it will come."""
        self._take()
        with self._lock:
            for row in self._rows.close():
                self._complete(row)
        if self._rows.count == before and not failed:
            warn(f"jaxtap: {self._plan.name} has seen nothing. It looked for {self._plan.looked_for}.", stacklevel=3)

    # --- Afterwards ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        """The rows so far, oldest first."""
        self._take()
        return list(self._rows.kept)

    @property
    def dropped(self) -> int:
        """How many rows were dropped to keep within `capacity`."""
        return self._rows.count - len(self._rows.kept)

    def df(self) -> pd.DataFrame:
        """The rows as a table: `path`, `step`, `lane`, `outer`, `call`, then what was seen; NaN where that was nothing.

        Raises:
          ImportError: without pandas.
        """
        return table(self.rows, self._plan.first)

    def wait(self) -> None:
        """Wait until what the programs of this thread have sent has become rows, while the watch stays open."""
        settle()
        self._take()

    def report(self) -> Report:
        """What was seen and what was not: loops, values, events expected and delivered, failures."""
        report = self._recorder.report()
        return dataclasses.replace(report, failures=report.failures | self._guard.failures)

    def __repr__(self) -> str:
        return f"<{self._plan.name}: {len(self._rows.kept)} rows, {len(self.trips)} tripwires fired>"
