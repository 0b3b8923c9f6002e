"""Hands events on to user functions and sinks, on jaxtap's own thread, through a queue that is bounded."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from jaxtap._batches import Batch
from jaxtap._config import Host, HostTap
from jaxtap._emit import PointEntry
from jaxtap._events import TapEvent
from jaxtap._guard import Guard, say, warn
from jaxtap._lines import alert_line, value_line
from jaxtap._router import router
from jaxtap._sinks import TakesBatches, is_sink
from jaxtap._tap_chunk import TapChunk

# How much may wait to be handed on before what `overflow` says happens.
MOST_EVENTS = 1 << 16
MOST_BYTES = 64 << 20
# How long a program waits for user functions of which not one returns. One that itself runs JAX may need the very
# thread that waits; then no wait is long enough.
STALL_S = 5.0


class Teller:
    """Calls a lens's user functions with what arrives.

    Args:
      host: those functions.
      guard: counts their failures.
      digest: takes up what has arrived.

    Attributes:
      behind: whether more waits to be handed on than may.
      untold: events with which user functions were not called, because they could not keep up.
      waited_s: how long the program has waited for them.
    """

    def __init__(self, host: Host, guard: Guard, digest: Callable[[], None]) -> None:
        self._host, self._guard, self._digest = host, guard, digest
        self._queue: collections.deque[tuple[int, int, Callable[[], None]]] = collections.deque()
        self._lock = threading.Condition()
        self._events = self._bytes = 0
        self._told = 0
        self._poked = False
        self._drops = host.overflow == "drop"
        alone = not any((host.alert, host.on_ys, host.alert_ys, host.taps))
        self._within_s = host.on_step.within_s if alone and isinstance(host.on_step, TakesBatches) else 0.0
        self._alerted: set[tuple[str, str]] = set()
        self._printed: set[int] = set()
        self.behind = False
        self.untold = 0
        self.waited_s = 0.0

    # --- The queue -------------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Something has arrived, or waits in the queue."""
        if not self._poked:
            self._poked = True
            router.put_within(self._run, self._within_s)

    def put(self, item: Batch | TapEvent) -> None:
        """Hand events on."""
        if isinstance(item, TapEvent):
            self.put_job(lambda: self._call("on_step", self._host.on_step, item))
        elif self._is_waited_for(item):
            self._put(len(item), item.nbytes, lambda: self._tell_batch(item))

    def put_job(self, job: Callable[[], None]) -> None:
        """Call a function after what was put before it."""
        self._put(1, 0, job)

    def _put(self, events: int, nbytes: int, job: Callable[[], None]) -> None:
        with self._lock:
            self._queue.append((events, nbytes, job))
            self._count(events, nbytes)
            lost = self._drop() if self._drops else 0
        self._say_untold(lost)
        self.poke()

    def _count(self, events: int, nbytes: int) -> None:
        self._events += events
        self._bytes += nbytes
        self.behind = self._events > MOST_EVENTS or self._bytes > MOST_BYTES

    def _drop(self) -> int:
        """Drop the oldest that wait; returns how many events these are."""
        lost = 0
        while self.behind and len(self._queue) > 1:
            events, nbytes, _ = self._queue.popleft()
            self._count(-events, -nbytes)
            lost += events
        self.untold += lost
        return lost

    def _say_untold(self, lost: int) -> None:
        if lost and lost == self.untold:
            warn(
                "jaxtap: user functions cannot keep up with the program: the oldest events that wait for them are "
                "dropped for them, and counted as `untold` in report(). A recorder has them. Send fewer "
                "(sample_every=, where=), or pass a sink, which takes many events at once.",
                stacklevel=4,
            )

    def wait(self) -> None:
        """On a thread of the program: wait until user functions have caught up, unless not one of them returns."""
        if self._drops or router.is_own():
            return
        start, told, seen_at = time.monotonic(), self._told, time.monotonic()
        lost = 0
        with self._lock:
            while self.behind:
                self._lock.wait(STALL_S / 10)
                if self._told != told:
                    told, seen_at = self._told, time.monotonic()
                elif time.monotonic() - seen_at > STALL_S:
                    # From here on the program does not wait any more.
                    self._drops = True
                    lost = self._drop()
                    break
            self.waited_s += time.monotonic() - start
        self._say_untold(lost)

    def _run(self) -> None:
        """On jaxtap's own thread: take up what has arrived, and hand it on."""
        self._poked = False
        self._digest()
        while self._queue:
            with self._lock:
                if not self._queue:
                    return
                events, nbytes, job = self._queue.popleft()
            try:
                job()
            finally:
                self._progress()
                with self._lock:
                    self._count(-events, -nbytes)
                    self._lock.notify_all()

    def _progress(self) -> None:
        self._told += 1
        router.progress()

    # --- User functions --------------------------------------------------------------------------------------

    def _is_waited_for(self, batch: Batch) -> bool:
        """Whether any function is to be called with these."""
        host = self._host
        if any((host.on_step, host.alert, host.on_ys, host.alert_ys)):
            return True
        taps = [tap for block in batch.blocks if (tap := self._tap(block.entry)) is not None]
        return any(tap.alert is not None for tap in taps)

    def _tap(self, entry: Any) -> HostTap | None:
        """The tap that a crossing is of."""
        return self._host.taps[entry.tap] if isinstance(entry, PointEntry) and entry.tap >= 0 else None

    def _tell_batch(self, batch: Batch) -> None:
        host = self._host
        if any((host.alert, host.alert_ys, host.taps)) or not (_is_quick(host.on_step) and _is_quick(host.on_ys)):
            for block, events in batch.rows():
                tap = block.entry.tap if isinstance(block.entry, PointEntry) else -1
                for event in events:
                    if tap >= 0:
                        self.tell_tap(event, tap, block.entry.site.op, is_many=True)
                    else:
                        self._tell(event)
        self._write("on_step", host.on_step, batch, lambda kind: kind != "output")
        self._write("on_ys", host.on_ys, batch, lambda kind: kind == "output")

    def _write(self, name: str, target: Any, batch: Batch, wanted: Callable[[str], bool]) -> None:
        """Hand many events on at once, to what takes them so."""
        if not is_sink(target):
            return
        own = batch.only(wanted)
        if own is None:
            return
        if isinstance(target, TakesBatches):
            self._guard.call(name, target.add, own)
            return
        for chunk in own.chunks():
            self._guard.call(name, target.write, chunk)
            self._progress()

    def _tell(self, event: TapEvent) -> None:
        host = self._host
        if event.kind == "output":
            self._tell_one(event, "alert_ys", host.alert_ys, host.alert_ys_once, "on_ys", host.on_ys)
        else:
            self._tell_one(event, "alert", host.alert, host.alert_once, "on_step", host.on_step)

    def _tell_one(self, event: TapEvent, alert_name: str, alert: Any, once: bool, name: str, on_event: Any) -> None:
        if alert is not None and not (once and (event.path, event.kind) in self._alerted):
            message = self._guard.call(alert_name, alert, event)
            if self._guard.call(alert_name, bool, message):
                self._alerted.add((event.path, event.kind))
                say(alert_line(event, message if isinstance(message, str) else "alert"))
        if not is_sink(on_event):
            self._call(name, on_event, event)
        self._progress()

    def _call(self, name: str, target: Any, event: TapEvent) -> None:
        """Hand a single event on."""
        if callable(target):
            self._guard.call(name, target, event)
        elif target is not None:
            self._guard.call(name, target.write, TapChunk.of(event))

    def tell_tap(self, event: TapEvent, index: int, op: str, line: str | None = None, is_many: bool = False) -> None:
        """Call what waits for the events of a tap; one of many events is written to a sink with the others."""
        tap = self._host.taps[index]
        if tap.alert is not None and not (tap.once and index in self._printed):
            message = self._guard.call("a tap's alert", tap.alert, event.value)
            if self._guard.call("a tap's alert", bool, message):
                self._printed.add(index)
                label = line or (op if tap.label is None else tap.label)
                say(value_line(event) if tap.prints else alert_line(event, label))
        if not is_many or not is_sink(self._host.on_step):
            self._call("on_step", self._host.on_step, event)
        self._progress()


def _is_quick(target: Any) -> bool:
    """Whether it need not be called for each event."""
    return target is None or is_sink(target)
