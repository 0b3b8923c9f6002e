"""The host side of a lens: receives crossings, keeps the account, and hands events on."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxtap import _active
from jaxtap._accounts import Accounts, Placed
from jaxtap._arrivals import MOST_BYTES, Arrivals, Raw
from jaxtap._batches import Batch, batch
from jaxtap._chunks import Chunk
from jaxtap._compile_log import Compile
from jaxtap._compiles import Listener
from jaxtap._config import Host, View
from jaxtap._emit import Entry, HuntEntry, PointEntry, RingEntry
from jaxtap._events import TapEvent
from jaxtap._guard import Guard
from jaxtap._hunt import culprit, sick_inputs, summary
from jaxtap._intercept import hooks
from jaxtap._lanes import chosen, mask_of
from jaxtap._mark import Site
from jaxtap._notes import notes
from jaxtap._numbering import Numbering
from jaxtap._recorder import FlightRecorder
from jaxtap._report import Report
from jaxtap._ring_rows import placed as ring_rows
from jaxtap._router import router
from jaxtap._signals import uninterrupted
from jaxtap._teller import Teller
from jaxtap._trace_events import compile_event, trace_event
from jaxtap._tripped import Trips
from jaxtap._turned import Turned
from jaxtap._unpack import unpack_point


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
        self.listener: Listener | None = None
        self._accounts = Accounts()
        self._arrivals = Arrivals()
        self._guard = Guard()
        self._teller = Teller(host, self._guard, self.digest)
        self._lock = threading.Lock()
        self._digesting = threading.RLock()
        self._turned = Turned()
        self._trips = Trips()
        self._traced: set[Any] = set()
        self._patient = True
        self._unknown: set[str] = set()
        self._calls_user = host.calls_user
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
        self._keep(event)

    def _keep(self, item: Batch | TapEvent) -> None:
        """Hand on what has been taken up."""
        if self.recorder is not None:
            self.recorder.add(item)
        if self._calls_user:
            self._teller.put(item)

    @functools.cached_property
    def is_told(self) -> bool:
        """Whether this is one of the processes in which events are received."""
        return self.host.processes is None or jax.process_index() in self.host.processes

    # --- Arrival ---------------------------------------------------------------------------------------------

    def take(self, raw: Raw) -> None:
        """A crossing: its host end, the time, how many arrays were sent, and those."""
        if self.is_told:
            self._arrivals.put(raw)
            if self._calls_user or self._arrivals.nbytes > MOST_BYTES:
                self._have_taken(((raw[0], raw[3]),))

    def take_chunks(self, chunks: list[Chunk], now: float) -> None:
        """All that one flush brought, at a time in seconds since the epoch."""
        if self.is_told:
            self._arrivals.put_chunks(chunks, now)
            self._have_taken((chunk.entry, chunk.counts) for chunk in chunks)

    def _have_taken(self, counts: Iterable[tuple[Any, Any]]) -> None:
        """Something has come. Where no user function waits for it, no one looks at it before someone asks."""
        if self._arrivals.nbytes > MOST_BYTES:
            self.digest()
        if not self._calls_user:
            return
        self._teller.poke()
        if self._teller.behind:
            self._teller.wait()
        # As with a callback of JAX's own, what was sent has been told when the program's result is there.
        if self._patient and any(_is_last(entry, np.asarray(count)) for entry, count in counts):
            self._patient = router.catch_up()

    def digest(self) -> None:
        """Take up what has arrived, in order."""
        with self._digesting:
            for item in self._arrivals.taken():
                take = self._take_up if isinstance(item, list) else self._take_up_other
                self._guard.call("receiving an event", take, item)

    def _take_up(self, chunks: list[Chunk]) -> None:
        """Rows of loops, equations and marked values."""
        text = self.numbering.text
        with self._lock:
            placed = self._accounts.take(self._first_to_turn(chunks), text)
        self._keep_placed(placed)
        tripped = [own for own in placed if self._is_trip(own.chunk.entry)]
        if tripped and (found := batch(tripped)) is not None:
            self._trips.keep(found.events())

    def _first_to_turn(self, chunks: list[Chunk]) -> list[Chunk]:
        if all(chunk.entry.site.kind != "cotangent" for chunk in chunks):
            return chunks
        found: list[Chunk | None] = [
            self._turned.first(chunk, self.numbering.text(chunk.entry.path))
            if chunk.entry.site.kind == "cotangent"
            else chunk
            for chunk in chunks
        ]
        return [chunk for chunk in found if chunk is not None]

    def _is_trip(self, entry: Any) -> bool:
        return isinstance(entry, PointEntry) and entry.tap >= 0 and self.host.taps[entry.tap].trips

    def _keep_placed(self, placed: Sequence[Placed]) -> None:
        found = batch(placed)
        if found is not None:
            self._keep(found)

    def _take_up_other(self, raw: Raw) -> None:
        """What is no rows."""
        entry, now, _, *arrays = raw
        if not isinstance(entry, RingEntry):
            self.arrive_from_hunt(entry, now, arrays)
            return
        path = self.numbering.text(entry.path)
        with self._lock:
            placed = ring_rows(self._accounts, entry, path, now, arrays)
        self._keep_placed([] if placed is None else [placed])

    @property
    def trips(self) -> list[TapEvent]:
        """The events of tripwires that fired, the first ones."""
        self.digest()
        return self._trips

    def saw_point(self, path: str, site: Site) -> None:
        """A tapped equation or marked value was lowered while this lens was open."""
        with self._lock:
            self._accounts.saw_point(path, site)

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
            self.recorder.add(event)
        self._trips.keep([event])
        label = self.host.taps[tap].label
        self._teller.put_job(lambda: self._teller.tell_tap(event, tap, op, f"{label}: {what}"))

    def passed_through(self, primitive: str) -> None:
        """Loops inside a primitive that is not entered are not seen."""
        with self._lock:
            self._unknown.add(primitive)

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
            untold=self._teller.untold,
            waited_s=self._teller.waited_s,
        )


def _is_last(entry: Any, counts: np.ndarray) -> bool:
    """Whether an outermost loop has ended."""
    if not isinstance(entry, Entry) or isinstance(entry, RingEntry) or entry.num_outer:
        return False
    return bool(((counts <= 0) | (counts == entry.site.total)).any())


def _range(operand: dict[str, Any]) -> str:
    return f"[{operand['low']:.4g}, {operand['high']:.4g}]"


class Opening:
    """A lens held open over some code: in this thread, or in all."""

    _is_open = False

    def __init__(self, lens: Lens, key: _active.Key, everywhere: bool = False) -> None:
        self._lens, self._key, self._everywhere = lens, key, everywhere
        self._thread = threading.get_ident()

    def __del__(self) -> None:
        # Ctrl-C may come as a block is left, before any code that closes a lens has run.
        if self._is_open:
            self.close()

    def open(self) -> None:
        """From here on programs are seen."""
        with uninterrupted():
            if self._lens.listener is not None:
                self._lens.listener.open()
            hooks.acquire(not self._lens.view.only_loops)
            _active.enter(self._key, self._lens, self._everywhere)
            self._is_open = True

    def close(self) -> None:
        """From here on they are not. A second call does nothing."""
        with uninterrupted():
            if not self._is_open:
                return
            self._is_open = False
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
