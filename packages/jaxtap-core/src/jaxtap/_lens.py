"""The host side of a lens: receives crossings, keeps the account, and hands events on."""

from __future__ import annotations

import threading
from typing import Any

from jaxtap import _active
from jaxtap._accounts import Accounts
from jaxtap._config import Host, View
from jaxtap._emit import Entry
from jaxtap._events import TapEvent
from jaxtap._guard import Guard, say
from jaxtap._intercept import hooks
from jaxtap._mark import Path, Site
from jaxtap._notes import drift_note, notes
from jaxtap._numbering import Numbering
from jaxtap._recorder import FlightRecorder
from jaxtap._records import Record, unpack
from jaxtap._report import Report
from jaxtap._router import router


class Lens:
    """One lens: what it sees of programs (`view`), and who is told (`host`, `recorder`).

    Attributes:
      numbering: numbers for outermost loops, counted by this lens.
      loops_elsewhere: loops bound by threads that this lens does not see, while it was open.
      held_open: how many openings of this lens are in force.
      warned: whether the user has been told that something is off.
    """

    def __init__(self, view: View, host: Host, recorder: FlightRecorder | None) -> None:
        self.view = view
        self.host = host
        self.recorder = recorder
        self.numbering = Numbering()
        self.loops_elsewhere = 0
        self.held_open = 0
        self.warned = False
        self._accounts = Accounts()
        self._guard = Guard()
        self._lock = threading.Lock()
        self._alerted: set[tuple[str, str]] = set()
        self._patient = True
        self._drifted: set[str] = set()
        self._unknown: set[str] = set()
        self._calls_user = host.calls_user
        if recorder is not None:
            recorder.account = self.report

    # --- While programs are lowered and run ------------------------------------------------------------------

    def saw(self, path: str, site: Site) -> None:
        """A loop was lowered while this lens was open."""
        with self._lock:
            self._accounts.saw(path, site)

    def arrive(self, entry: Entry, now: float, arrays: Any) -> None:
        """A crossing from the device, on a thread of XLA's: this is the path whose cost every event pays."""
        count, outer, mask, events, payload = unpack(entry, arrays)
        step = abs(count) - 1
        sent = entry.events_in(mask)
        record = None
        with self._lock:
            execution = self._accounts.running.get(entry.loop)
            # A loop that begins anew without having ended was cut off, as when a program fails.
            if execution is None or (sent and step <= execution.last):
                execution = self._accounts.begin(entry, self.numbering.text(entry.path))
            if sent:
                execution.last = step
                execution.events += sent
                record = Record(entry, execution.path, execution.call, now, step, outer, mask, payload)
                if self.recorder is not None:
                    self.recorder.add(record, sent)
            if count <= 0:
                self._accounts.end(entry, execution, step + 1, events)
        if self._calls_user:
            if record is not None:
                router.put(lambda: self._hand_on(record))
            # Whoever holds the lens open waits when closing it; a compiled program that outlives it waits here.
            if count <= 0 and not outer and not self.held_open and self._patient:
                self._patient = router.catch_up()

    def passed_through(self, primitive: str) -> None:
        """Loops inside a primitive that is not entered are not seen."""
        with self._lock:
            self._unknown.add(primitive)

    def drifted(self, path: Path) -> None:
        """A loop's events came from a copy of it whose result is not the loop's own."""
        with self._lock:
            self._drifted.add(self.numbering.text(path))

    def _hand_on(self, record: Record) -> None:
        """Call the user's functions, on jaxtap's own thread."""
        for event in record.events():
            if event.kind == "output":
                self._tell(event, "alert_ys", self.host.alert_ys, self.host.alert_ys_once, "on_ys", self.host.on_ys)
            else:
                self._tell(event, "alert", self.host.alert, self.host.alert_once, "on_step", self.host.on_step)

    def _tell(self, event: TapEvent, alert_name: str, alert: Any, once: bool, name: str, on_event: Any) -> None:
        if alert is not None and not (once and (event.path, event.kind) in self._alerted):
            message = self._guard.call(alert_name, alert, event)
            if self._guard.call(alert_name, bool, message):
                self._alerted.add((event.path, event.kind))
                say(alert_line(event, message))
        if on_event is not None:
            self._guard.call(name, on_event, event)

    # --- Afterwards ------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """The account so far."""
        with self._lock:
            loops, sites, drifted = self._accounts.report(), self._accounts.sites(), sorted(self._drifted)
        dropped = self.recorder.dropped if self.recorder is not None else 0
        return Report(
            loops=loops,
            dropped=dropped,
            failures=dict(self._guard.failures),
            unknown=tuple(sorted(self._unknown)),
            notes=(*notes(self.view, loops, sites, dropped, self.loops_elsewhere), *map(drift_note, drifted)),
        )


def alert_line(event: TapEvent, message: Any) -> str:
    """The line that an alert prints."""
    lane = f" lane {event.lane}" if event.lane else ""
    total = "?" if event.total is None else event.total
    text = message if isinstance(message, str) else "alert"
    return f"[tap] FAIL {event.path} {event.step}/{total}{lane}: {text}"


class Opening:
    """A lens held open over some code: in this thread, or in all."""

    def __init__(self, lens: Lens, key: _active.Key, everywhere: bool = False) -> None:
        self._lens, self._key, self._everywhere = lens, key, everywhere

    def open(self) -> None:
        """From here on programs are seen."""
        self._lens.held_open += 1
        hooks.acquire()
        _active.enter(self._key, self._lens, self._everywhere)

    def close(self) -> None:
        """From here on they are not."""
        _active.leave(self._key, self._lens, self._everywhere)
        hooks.release()

    def settled(self) -> None:
        """No one waits for this opening any more."""
        self._lens.held_open -= 1
