"""The host side of a lens: receives crossings, keeps the account, and hands events on."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxtap import _active
from jaxtap._accounts import Accounts
from jaxtap._compile_log import Compile
from jaxtap._compiles import Listener
from jaxtap._config import Host, View
from jaxtap._emit import Entry, HuntEntry, PointEntry, RingEntry
from jaxtap._events import TapEvent
from jaxtap._guard import Guard, say
from jaxtap._hunt import culprit, sick_inputs, summary
from jaxtap._intercept import hooks
from jaxtap._lanes import chosen, mask_of
from jaxtap._lines import alert_line, place, value_line
from jaxtap._mark import Site
from jaxtap._notes import notes
from jaxtap._numbering import Numbering
from jaxtap._recorder import FlightRecorder
from jaxtap._records import Record, unpack, unpack_point
from jaxtap._report import Report
from jaxtap._router import router
from jaxtap._trace_events import compile_event, trace_event

# How many trips the error of `raise_on_exit` carries.
TRIPS_KEPT = 1000


class Tripped(Exception):
    """A tripwire has fired. Raised on leaving `jaxtap.record(..., raise_on_exit=True)`, after the program has ended.

    Attributes:
      events: the events of the tripwires, oldest first, at most 1000.
    """

    def __init__(self, events: Sequence[TapEvent]) -> None:
        self.events = tuple(events)
        first = self.events[0]
        more = f", and {len(self.events) - 1} more" if len(self.events) > 1 else ""
        super().__init__(
            f"a tripwire fired at {place(first)} ({first.source}){more}; see the events of this exception."
        )


# A crossing as it arrived: its host end, the time, how many arrays were sent, and those.
Raw = tuple[Any, ...]


class Lens:
    """One lens: what it sees of programs (`view`), and who is told (`host`, `recorder`).

    Attributes:
      numbering: numbers for outermost loops, counted by this lens.
      loops_elsewhere: loops bound by threads that this lens does not see, while it was open.
      tapped: primitives of the equations that its programs hold marks of.
      left_out: addresses of the loops in its programs that its filters leave out.
      warned: whether the user has been told that something is off.
      listener: with `trace=True`, hears what is compiled.
    """

    def __init__(self, view: View, host: Host, recorder: FlightRecorder | None) -> None:
        self.view = view
        self.host = host
        self.recorder = recorder
        self.numbering = Numbering()
        self.loops_elsewhere = 0
        self.warned = False
        self.tapped: set[str] = set()
        self.left_out: set[str] = set()
        self._accounts = Accounts()
        self._guard = Guard()
        self._lock = threading.Lock()
        self._digesting = threading.RLock()
        self._alerted: set[tuple[str, str]] = set()
        self._printed: set[int] = set()
        self._turned: dict[Any, tuple[int, Any]] = {}
        # The events of tripwires that fired, the first ones.
        self.trips: list[TapEvent] = []
        self.listener: Listener | None = None
        self._traced: set[Any] = set()
        self._patient = True
        self._unknown: set[str] = set()
        self._calls_user = host.calls_user
        # What has arrived and has not been looked at. Where no user function waits for events, that is put off until
        # someone asks, so that the program waits as little as can be.
        # One after the other, not as tuples: those would make work for the garbage collector.
        self._raw: collections.deque[Any] = collections.deque()
        prompt = self._calls_user or recorder is None or recorder.capacity is not None
        self.take: Callable[[Raw], None] = self._take_up if prompt else self._raw.extend
        if host.processes is not None:
            self._take, self.take = self.take, self._take_here
        if recorder is not None:
            recorder.account, recorder.feed = self.report, self.digest

    # --- While programs are lowered and run ------------------------------------------------------------------

    def saw(self, path: str, mark: Any) -> None:
        """A loop was lowered while this lens was open."""
        site: Site = mark.params["site"]
        with self._lock:
            self._accounts.saw(path, site)
        if self.listener is not None and site.kind == "carry":
            self._guard.call("a trace event", self._saw_types, path, mark)

    def _saw_types(self, path: str, mark: Any) -> None:
        event = trace_event(path, mark)
        # A loop is looked at more than once while it is lowered.
        seen = (path, event.total, *event.value.items())
        if seen not in self._traced:
            self._traced.add(seen)
            self.deliver(event)

    def deliver(self, event: TapEvent) -> None:
        """An event that has not come from a device."""
        if not self.is_told:
            return
        if process := jax.process_index():
            event = dataclasses.replace(event, process=process)
        self.digest()
        if self.recorder is not None:
            self.recorder.add(event, 1)
        on_step = self.host.on_step
        if on_step is not None:
            router.put(lambda: self._guard.call("on_step", on_step, event))

    @functools.cached_property
    def is_told(self) -> bool:
        """Whether this is one of the processes in which events are received."""
        return self.host.processes is None or jax.process_index() in self.host.processes

    def _take_here(self, raw: Raw) -> None:
        if self.is_told:
            self._take(raw)

    def _take_up(self, raw: Raw) -> None:
        entry, now, _, *arrays = raw
        if isinstance(entry, RingEntry):
            self.arrive_with_ring(entry, now, arrays)
        elif isinstance(entry, Entry):
            self.arrive(entry, now, arrays)
        elif isinstance(entry, PointEntry):
            self.arrive_at_point(entry, now, arrays)
        else:
            self.arrive_from_hunt(entry, now, arrays)

    def digest(self) -> None:
        """Take up what has arrived, in order."""
        with self._digesting:
            while self._raw:
                take = self._raw.popleft
                entry, now, count = take(), take(), take()
                raw = (entry, now, count, *(take() for _ in range(count)))
                self._guard.call("receiving an event", self._take_up, raw)

    def arrive(self, entry: Entry, now: float, arrays: list[Any]) -> None:
        """A crossing of a loop."""
        count, outer, mask, events, payload = unpack(entry, arrays)
        step = abs(count) - 1
        if count == entry.site.total:
            count = -count
        sent = entry.events_in(mask)
        record = None
        with self._lock:
            execution = self._accounts.running.get(entry.run)
            # A loop that begins anew without having ended was cut off, as when a program fails.
            if execution is None or (sent and step <= execution.last):
                execution = self._accounts.begin(entry, self.numbering.text(entry.path))
            if sent:
                execution.last = step
                execution.events += sent
                execution.most = max(execution.most, sent)
                record = Record(entry, execution.path, execution.call, now, step, outer, mask, payload)
                if self.recorder is not None:
                    self.recorder.add(record, sent)
            if count <= 0:
                self._accounts.end(entry, execution, step + 1, events)
        if self._calls_user:
            if record is not None:
                router.put(lambda: self._hand_on(record))
            # As with a callback of JAX's own, what was sent has been told when the program's result is there.
            if count <= 0 and not outer and self._patient:
                self._patient = router.catch_up()

    def arrive_with_ring(self, entry: RingEntry, now: float, arrays: list[Any]) -> None:
        """A crossing with the newest steps of a loop; those that came with an earlier one are not new."""
        count, outer, of_lanes, _, rings = unpack(entry, arrays)
        done, every, rows = abs(count), entry.sample_every, entry.key.view.last or 1
        if count == entry.site.total:
            count = -count
        records: list[Record] = []
        with self._lock:
            execution = self._accounts.running.get(entry.run)
            if execution is None or (count and done - 1 <= execution.last):
                execution = self._accounts.begin(entry, self.numbering.text(entry.path))
            sampled = -(-done // every)
            newest = range(max(0, sampled - rows) * every, done, every)
            for step in newest if of_lanes is None else np.unique(of_lanes[of_lanes >= 0]).tolist():
                if step <= execution.last:
                    continue
                slot = step // every % rows
                mask = None if of_lanes is None else of_lanes[slot] == step
                sent = entry.events_in(mask)
                if sent:
                    payload = [ring[slot] for ring in rings]
                    records.append(Record(entry, execution.path, execution.call, now, step, outer, mask, payload))
                    execution.events += sent
                    if self.recorder is not None:
                        self.recorder.add(records[-1], sent)
            execution.last = done - 1
            if count <= 0:
                self._accounts.end_of_ring(entry, execution, done)
        for record in records if self._calls_user else ():
            router.put(lambda record=record: self._hand_on(record))

    def saw_point(self, path: str, site: Site) -> None:
        """A tapped equation or marked value was lowered while this lens was open."""
        with self._lock:
            self._accounts.saw_point(path, site)

    def arrive_at_point(self, entry: PointEntry, now: float, arrays: list[Any]) -> None:
        """A crossing of a single equation or marked value."""
        steps, mask, payload = unpack_point(entry, arrays)
        path = self.numbering.text(entry.path)
        sent = entry.events_in(mask)
        if entry.site.kind == "cotangent":
            mask = self._first_to_turn(entry, path, steps, mask)
            if mask is not None and not mask.any():
                return
            sent = entry.events_in(mask)
        with self._lock:
            call = self._accounts.point(path, entry.site, (entry.tap, entry.device), steps, sent)
            step = steps[-1] if steps else -1
            record = Record(entry, path, call, now, step, steps[:-1], mask, payload)
            if self.recorder is not None:
                self.recorder.add(record, sent)
        if entry.tap >= 0 and self.host.taps[entry.tap].trips:
            self._keep_trips(record.events())
        if self._calls_user:
            router.put(lambda: self._hand_on(record))

    def _first_to_turn(self, entry: PointEntry, path: str, steps: tuple[int, ...], mask: Any) -> Any:
        """Of the lanes whose cotangent is not finite, those where it was so at the step before in the gradient pass."""
        lanes = entry.parts[0].lanes
        mask = np.ones(lanes, bool) if mask is None else mask.reshape(lanes)
        key = (path, entry.tap, entry.device, steps[:-1])
        last_step, last = self._turned.get(key, (None, None))
        self._turned[key] = (steps[-1], mask)
        return mask & ~last if last is not None and last_step == steps[-1] + 1 else mask

    def _keep_trips(self, events: Iterable[TapEvent]) -> None:
        self.trips += itertools.islice(events, max(0, TRIPS_KEPT - len(self.trips)))

    def arrive_from_hunt(self, entry: HuntEntry, now: float, arrays: list[Any]) -> None:
        """A step has gone wrong, and was evaluated again: find the equation."""
        steps, mask, (table,) = unpack_point(entry, arrays)
        own = [hunter.index for hunter in entry.hunters if hunter.key.lens is self]
        lanes = table.shape[:-2]
        asked = mask_of(chosen(self.view.lanes, lanes), lanes)
        for tap, lane in itertools.product(own, np.ndindex(lanes)):
            if asked[lane] and (mask is None or mask[lane]):
                self._found(entry, tap, now, steps, lane, table[lane])

    def _found(
        self, entry: HuntEntry, tap: int, now: float, steps: tuple[int, ...], lane: tuple[int, ...], table: Any
    ) -> None:
        site, path = entry.site, self.numbering.text(entry.path)
        made = culprit(site, table)
        if made is None and entry.is_whole:
            # Nothing in the step has made it: it was given so.
            given = sick_inputs(site, table)
            kind, source, value = "carry", "", {name: summary(table[site.names.index(name)]) for name in given}
            op, what = "state", f"came in with {', '.join(given) or 'a value that is not looked into'}"
        elif made is None or made.looked_into:
            return
        else:
            kind, source, op = "primitive", made.source, made.primitive
            path = f"{path}/{op}[{made.number}]"
            operands = tuple(summary(table[i]) for i in made.used)
            out = summary(table[made.made[0]])
            value = {"nan": out["nan"], "inf": out["inf"], "operands": operands}
            what = f"{source}, operands in {' and '.join(_range(o) for o in operands) or 'no range'}"
        with self._lock:
            loop = self._accounts.sites().get((path, "carry"))
            source = source or (loop.source if loop is not None else "")
            site = dataclasses.replace(site, op=op, kind=kind, source=source)
            call = self._accounts.point(path, site, (tap, entry.device), steps, 1)
        where = (entry.device, entry.process)
        event = TapEvent(path, steps[-1], value, entry.total, kind, lane, steps[:-1], call, now, source, *where)
        if self.recorder is not None:
            self.recorder.add(event, 1)
        self._keep_trips([event])
        label = self.host.taps[tap].label
        router.put(lambda: self._tell_tap(event, tap, op, f"{label}: {what}"))

    def passed_through(self, primitive: str) -> None:
        """Loops inside a primitive that is not entered are not seen."""
        with self._lock:
            self._unknown.add(primitive)

    def _hand_on(self, record: Record) -> None:
        """Call the user's functions, on jaxtap's own thread."""
        tap = record.entry.tap if isinstance(record.entry, PointEntry) else -1
        for event in record.events():
            if tap >= 0:
                self._tell_tap(event, tap, record.entry.site.op)
            elif event.kind == "output":
                self._tell(event, "alert_ys", self.host.alert_ys, self.host.alert_ys_once, "on_ys", self.host.on_ys)
            else:
                self._tell(event, "alert", self.host.alert, self.host.alert_once, "on_step", self.host.on_step)

    def _tell(self, event: TapEvent, alert_name: str, alert: Any, once: bool, name: str, on_event: Any) -> None:
        if alert is not None and not (once and (event.path, event.kind) in self._alerted):
            message = self._guard.call(alert_name, alert, event)
            if self._guard.call(alert_name, bool, message):
                self._alerted.add((event.path, event.kind))
                say(alert_line(event, message if isinstance(message, str) else "alert"))
        if on_event is not None:
            self._guard.call(name, on_event, event)

    def _tell_tap(self, event: TapEvent, index: int, op: str, line: str | None = None) -> None:
        tap = self.host.taps[index]
        if tap.alert is not None and not (tap.once and index in self._printed):
            message = self._guard.call("a tap's alert", tap.alert, event.value)
            if self._guard.call("a tap's alert", bool, message):
                self._printed.add(index)
                label = line or (op if tap.label is None else tap.label)
                say(value_line(event) if tap.prints else alert_line(event, label))
        if self.host.on_step is not None:
            self._guard.call("on_step", self.host.on_step, event)

    # --- Afterwards ------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """The account so far."""
        self.digest()
        with self._lock:
            loops, points, sites = self._accounts.report(), self._accounts.points(), self._accounts.sites()
        dropped = self.recorder.dropped if self.recorder is not None else 0
        elsewhere, traces = self.loops_elsewhere, self.listener is not None
        met = (self.tapped, self.left_out)
        off = notes(self.view, loops, points, met, sites, dropped, elsewhere, traces) if self.is_told else ()
        return Report(
            loops=loops,
            points=points,
            dropped=dropped,
            failures=dict(self._guard.failures),
            unknown=tuple(sorted(self._unknown)),
            notes=off,
        )


def _range(operand: dict[str, Any]) -> str:
    return f"[{operand['low']:.4g}, {operand['high']:.4g}]"


class Opening:
    """A lens held open over some code: in this thread, or in all."""

    def __init__(self, lens: Lens, key: _active.Key, everywhere: bool = False) -> None:
        self._lens, self._key, self._everywhere = lens, key, everywhere
        self._thread = threading.get_ident()

    def open(self) -> None:
        """From here on programs are seen."""
        if self._lens.listener is not None:
            self._lens.listener.open()
        hooks.acquire(not self._lens.view.only_loops)
        _active.enter(self._key, self._lens, self._everywhere)

    def close(self) -> None:
        """From here on they are not."""
        _active.leave(self._key, self._lens, self._everywhere)
        hooks.release(not self._lens.view.only_loops)
        if self._lens.listener is not None:
            self._lens.listener.close(self._thread)


def with_listener(lens: Lens, recorder: FlightRecorder, everywhere: bool = False) -> Lens:
    """The lens, which from now on tells of what is traced and compiled while it is open."""

    def tell(row: Compile) -> None:
        if not row.of_jax:
            lens.deliver(compile_event(row))

    lens.listener = Listener(recorder.compiles, everywhere=everywhere, on_compile=tell)
    return lens
