"""Where the time of a recording goes: the stations before a program runs, then its loops, with a forecast."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import overload

from jaxtap._compile_log import Compile
from jaxtap._events import TapEvent


@dataclasses.dataclass(frozen=True)
class Span:
    """One station of one program.

    Attributes:
      station: `"trace"`, `"lower"`, `"compile"`, or `"execute"`.
      name: the function, or the address of the loop.
      start: when it began, in seconds since the epoch.
      seconds: how long it took; of `"execute"`, until the newest event.

    >>> import jax
    >>> with record(trace=True) as rec:
    ...     y = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, x))(0.0)
    >>> [span.station for span in rec.timeline()]
    ['trace', 'lower', 'compile', 'execute']
    """

    station: str
    name: str
    start: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Run(Span):
    """One execution of an outermost loop, as far as its events tell.

    Attributes:
      call: which execution of that address it is.
      first_event: when its first event arrived, in seconds since the epoch.
      steps: how many of its steps are done.
      total: how many it has, or None.
      step_seconds: how long a step takes once it runs: the time between the first and the newest arrival by the steps
        done in between. None until events have arrived twice.

    >>> import jax
    >>> with record() as rec:
    ...     y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    >>> (run,) = rec.timeline().runs
    >>> run.name, run.steps, run.total, run.step_seconds > 0.0
    ('scan[0]', 3, 3, True)
    """

    call: int = 0
    first_event: float = 0.0
    steps: int = 0
    total: int | None = None
    step_seconds: float | None = None

    @property
    def forecast(self) -> float | None:
        """How long the whole loop takes at that pace, in seconds; None where that cannot be said yet."""
        return None if self.step_seconds is None or self.total is None else self.step_seconds * self.total

    @property
    def remaining(self) -> float | None:
        """How long is to go at that pace, in seconds; None where that cannot be said yet."""
        if self.step_seconds is None or self.total is None:
            return None
        return self.step_seconds * (self.total - self.steps)


class Timeline(Sequence[Span]):
    """The stations of a recording in the order in which they began. Printed, it is a page.

    >>> import jax
    >>> with record() as rec:
    ...     y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    >>> len(rec.timeline()), rec.timeline()[0].name
    (1, 'scan[0]')
    """

    def __init__(self, spans: Iterable[Span], others: float) -> None:
        self._spans = tuple(sorted(spans, key=lambda span: span.start))
        self._others = others

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        return self._spans[index]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The executions of outermost loops."""
        return tuple(span for span in self._spans if isinstance(span, Run))

    def __repr__(self) -> str:
        begin = self._spans[0].start if self._spans else 0.0
        lines = [f"{span.start - begin:9.3f} s  {_line(span)}" for span in self._spans]
        if self._others:
            lines.append(f"besides, {self._others:.3f} s on functions of JAX's own")
        return "\n".join(lines) or "nothing has run"


def _line(span: Span) -> str:
    head = f"{span.station:<8}{span.seconds:9.3f} s  {span.name}"
    if not isinstance(span, Run):
        return head
    text = f"{head}  first event after {span.first_event - span.start:.3f} s, {span.steps}"
    text += " steps" if span.total is None else f" of {span.total} steps"
    if span.step_seconds is not None:
        text += f", {span.step_seconds:.3g} s a step"
    if span.forecast is not None and span.remaining:
        text += f": {span.forecast:.3f} s in all, {span.remaining:.3f} s to go"
    return text


def timeline(compiles: Iterable[Compile], events: Iterable[TapEvent]) -> Timeline:
    """The timeline of what was compiled and what has arrived."""
    rows = list(compiles)
    spans = [span for row in rows if not row.of_jax for span in _stations(row)]
    ends = [row.time + row.seconds for row in rows]
    return Timeline([*spans, *_runs(events, ends)], sum(row.seconds for row in rows if row.of_jax))


def _stations(row: Compile) -> Iterable[Span]:
    start = row.time
    stations = (("trace", row.trace_seconds), ("lower", row.lowering_seconds), ("compile", row.compile_seconds))
    for station, seconds in stations:
        if seconds is not None:
            yield Span(station, row.name, start, seconds)
            start += seconds


def _runs(events: Iterable[TapEvent], ends: list[float]) -> Iterable[Run]:
    """The executions of outermost loops: what has arrived of each, first and last."""
    found: dict[tuple[str, int], list[TapEvent]] = {}
    for event in events:
        if event.kind in ("carry", "output") and not event.outer:
            found.setdefault((event.path, event.call), []).append(event)
    for (path, call), own in found.items():
        first, last = own[0].time, own[-1].time
        # Several steps arrive at once.
        at_first = max(event.step for event in own if event.time == first)
        newest = max(event.step for event in own)
        pace = (last - first) / (newest - at_first) if newest > at_first and last > first else None
        # It began when the program was there, and the loop before it was done.
        start = max((end for end in ends if end <= first), default=first)
        ends = [*ends, last]
        yield Run("execute", path, start, last - start, call, first, newest + 1, own[0].total, pace)
