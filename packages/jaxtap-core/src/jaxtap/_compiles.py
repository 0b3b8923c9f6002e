"""Compile events: what JAX traces, lowers and compiles over a block of code, how long it takes, and why again."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import re
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import jax
from jax import monitoring
from jax.extend import source_info_util

from jaxtap._active import looks_away
from jaxtap._afterwards import LOWERED
from jaxtap._cache_gates import calls_host, outcome
from jaxtap._compile_log import Compile, CompileLog
from jaxtap._config import THREADS, check_count
from jaxtap._guard import Guard, say
from jaxtap._jit_frames import JitCall, compiled_call, traced_call
from jaxtap._retrace import Change, changes
from jaxtap._signature import Signature, identity, name_of, signature, written_at
from jaxtap._sources import source_of_text

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE = "/jax/compilation_cache/"
_NOT_OF_USERS = (os.path.dirname(jax.__file__), os.path.dirname(__file__))
# How many calls of one function are kept to compare new ones with: the comparison is part of each compile.
_HISTORY = 16


@dataclasses.dataclass
class _Station:
    """A row on its way from one station to the next, and the name that JAX has for it."""

    name: str
    row: Compile
    index: int | None = None
    calls_host: bool | None = None


class _Function:
    """What is remembered of one function, however often it is defined: its calls so far."""

    def __init__(self) -> None:
        self.traces = 0
        self.alerted = False
        self.history: list[Signature] = []

    def compare(self, new: Signature) -> tuple[Change, ...]:
        """What made JAX trace or compile again; the call is remembered."""
        found = changes(new, self.history) if self.history else ()
        self.history = [*self.history, new][-_HISTORY:]
        return found


class Listener:
    """Hears JAX's event bus while it is open, and writes what it hears into a log.

    Attributes:
      log: the log.
    """

    def __init__(
        self,
        log: CompileLog,
        alert_after: int | None = None,
        everywhere: bool = False,
        on_compile: Callable[[Compile], None] | None = None,
    ) -> None:
        self.log = log
        self._alert_after, self._everywhere, self._on_compile = alert_after, everywhere, on_compile
        self._guard = Guard()
        self._lock = threading.RLock()
        # How often it is open in each thread.
        self._open: collections.Counter[int] = collections.Counter()
        self._functions: dict[Any, _Function] = {}
        self._jaxprs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._under_way: dict[int, list[_Station]] = {}
        self._cache_events: dict[int, set[str]] = {}

    def open(self) -> None:
        """From here on this thread is heard, or all are."""
        with self._lock:
            self._open[threading.get_ident()] += 1
            if self._open.total() > 1:
                return
            monitoring.register_event_listener(self._on_event)
            monitoring.register_event_duration_secs_listener(self._on_duration)
            monitoring.register_scalar_listener(self._on_scalar)
            _open.append(self)

    def close(self, thread: int | None = None) -> None:
        """From here on it is not; `thread` is the one that has opened it, if it is not this one."""
        with self._lock:
            self._open -= collections.Counter({threading.get_ident() if thread is None else thread: 1})
            if self._open:
                return
            if self in _open:
                _open.remove(self)
            # Whoever has cleared all listeners in the meantime has taken these, too.
            with contextlib.suppress(AssertionError, ValueError):
                monitoring.unregister_event_listener(self._on_event)
            with contextlib.suppress(AssertionError, ValueError):
                monitoring.unregister_event_duration_listener(self._on_duration)
            with contextlib.suppress(AssertionError, ValueError):
                monitoring.unregister_scalar_listener(self._on_scalar)
            self._under_way.clear()
            self._cache_events.clear()

    def abandon(self) -> None:
        """Close it, however often it is open."""
        for thread in list(self._open.elements()):
            self.close(thread)

    # --- What JAX tells -------------------------------------------------------------------------------------------

    def _on_event(self, event: str, **_: Any) -> None:
        if event.startswith(_CACHE) and self._is_mine():
            self._cache_events.setdefault(threading.get_ident(), set()).add(event)

    def _on_scalar(self, event: str, value: float, **_: Any) -> None:
        if event == _COMPILE and self._is_mine():
            self._cache_events.pop(threading.get_ident(), None)

    def _on_duration(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        station = {_TRACE: self._traced, LOWERED: self._lowered, _COMPILE: self._compiled}.get(event)
        if station is None or not self._is_mine():
            return
        try:
            with self._lock:
                station(_bare(str(kwargs.get("fun_name", "?"))), duration_secs)
        except Exception as error:  # noqa: BLE001 - a program that cannot be logged is compiled all the same
            self._guard.failed("jaxtap.compiles", error)

    def _is_mine(self) -> bool:
        if not self._open or looks_away():
            return False
        return self._everywhere or threading.get_ident() in self._open

    # --- The stations ---------------------------------------------------------------------------------------------

    def _traced(self, name: str, seconds: float) -> None:
        call = traced_call()
        row = dataclasses.replace(self._begun(name, seconds), trace_seconds=seconds)
        if call is None:
            station = _Station(name, row)
        elif call.jaxpr in self._jaxprs:
            # JAX has looked and found its trace: only what comes of it is worth a row.
            return
        else:
            self._jaxprs.add(call.jaxpr)
            station = _Station(name, self._described(row, call, is_new=True), calls_host=calls_host(call.jaxpr))
        self._stations().append(station)
        self._put(station)
        self._alert(station.row, call)

    def _lowered(self, name: str, seconds: float) -> None:
        station = self._station(name, lambda row: row.lowering_seconds is None, seconds)
        station.row = dataclasses.replace(station.row, lowering_seconds=seconds)
        self._put(station)

    def _compiled(self, name: str, seconds: float) -> None:
        station = self._station(name, lambda row: True, seconds)
        events = self._cache_events.pop(threading.get_ident(), set())
        cache, note = outcome(events, seconds, station.calls_host)
        station.row = dataclasses.replace(station.row, compile_seconds=seconds, cache=cache, cache_note=note)
        self._put(station)
        self._stations().remove(station)
        if self._on_compile is not None:
            self._on_compile(station.row)

    def _put(self, station: _Station) -> None:
        station.index = self.log.put(station.index, station.row)

    def _stations(self) -> list[_Station]:
        return self._under_way.setdefault(threading.get_ident(), [])

    def _station(self, name: str, waits: Callable[[Compile], bool], seconds: float) -> _Station:
        """The row that has come from the station before, or a new one, of a program that was traced before."""
        for station in reversed(self._stations()):
            if station.name == name and waits(station.row):
                return station
        row = self._begun(name, seconds)
        call = compiled_call()
        if call is not None and getattr(call.function, "__name__", name) == name:
            row = self._described(row, call, is_new=False)
        station = _Station(name, row)
        self._stations().append(station)
        return station

    def _begun(self, name: str, seconds: float) -> Compile:
        """The row of a program whose first station has just ended."""
        begin = time.time() - seconds
        caller = source_of_text(source_info_util.summarize(source_info_util.current()))
        return Compile(name, called_from=caller, time=begin, elapsed=begin - self.log.began)

    def _described(self, row: Compile, call: JitCall, is_new: bool) -> Compile:
        """A row with what is known of the call."""
        written = written_at(call.function, call.source)
        source = source_of_text(written)
        if any(f" at {folder}" in written for folder in _NOT_OF_USERS):
            return dataclasses.replace(row, source=source, of_jax=True)
        function = self._function(call)
        function.traces += is_new
        new = signature(call)
        return dataclasses.replace(
            row,
            name=name_of(call.function, row.name),
            source=source,
            arguments=new.shapes(),
            number=function.traces if is_new else 0,
            changes=function.compare(new),
        )

    def _function(self, call: JitCall) -> _Function:
        return self._functions.setdefault(identity(call.function), _Function())

    def _alert(self, row: Compile, call: JitCall | None) -> None:
        if self._alert_after is None or row.of_jax or call is None or row.number <= self._alert_after:
            return
        function = self._function(call)
        if not function.alerted:
            function.alerted = True
            say(f"[tap] {row.reason}, at {row.called_from or row.source}")


def _bare(name: str) -> str:
    """`f` of `jit(f)`."""
    found = re.fullmatch(r"\w+\((.*)\)", name)
    return found[1] if found else name


_open: list[Listener] = []


def forget() -> None:
    """Close every log."""
    for listener in list(_open):
        listener.abandon()


class Compiles:
    """A log of compiles over a block of code, from `with jaxtap.compiles() as log:`."""

    def __init__(self, alert_after: int | None, everywhere: bool) -> None:
        self._alert_after, self._everywhere = alert_after, everywhere
        self._listener: Listener | None = None

    def __enter__(self) -> CompileLog:
        if self._listener is not None:
            raise RuntimeError("this log is open already; call jaxtap.compiles(...) again for another.")
        self._listener = Listener(CompileLog(), self._alert_after, self._everywhere)
        self._listener.open()
        return self._listener.log

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.abandon()


def compiles(*, alert_after: int | None = None, threads: str = "own") -> Compiles:
    """Log what JAX traces, lowers and compiles over a block of unmodified code, how long it takes, and why again.

    `with compiles() as log:` gives a sequence of `Compile`, one for each program: name, source line, argument shapes,
    seconds of each station, what the persistent cache did, and what has changed since the most similar call before.
    It is told by JAX's own event bus, `jax.monitoring`. Calls for which JAX has a program cost nothing and are not
    counted: rows tell which trace of the function they are, and when. What was traced before the block is not known in
    it: the first trace inside is called the first.

    Args:
      alert_after: print one line to stderr when a function has been traced more often than this.
      threads: `"own"` logs the thread that opened the block, `"all"` every thread of the process.

    Raises:
      ValueError: for a value that is not allowed.

    >>> import jax, jax.numpy as jnp
    >>> @jax.jit
    ... def double(x):
    ...     return 2 * x
    >>> a, b = jnp.ones(3), jnp.ones(2)
    >>> with compiles() as log:
    ...     y, z = double(a), double(b)
    >>> log.of("double")[1].reason
    'double traced again (2nd time): argument x f32[3] → f32[2] (last batch?)'
    """
    if threads not in THREADS:
        raise ValueError(f"threads must be {' or '.join(map(repr, THREADS))}; got {threads!r}.")
    if alert_after is not None:
        check_count("alert_after", alert_after, 1, "how many traces of one function are fine")
    return Compiles(alert_after, threads == "all")
