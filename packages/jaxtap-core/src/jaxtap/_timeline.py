"""Where the time of a recording goes: the stations before a program runs, then its loops, with a forecast."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from jaxtap._compile_log import Compile
from jaxtap._frame import Segment, row_count


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


def timeline(compiles: Iterable[Compile], found: Iterable[Segment]) -> Timeline:
    """The timeline of what was compiled and what has arrived."""
    rows = list(compiles)
    spans = [span for row in rows if not row.of_jax for span in _stations(row)]
    ends = [row.time + row.seconds for row in rows]
    return Timeline([*spans, *_runs(found, ends)], sum(row.seconds for row in rows if row.of_jax))


def _stations(row: Compile) -> Iterable[Span]:
    start = row.time
    stations = (("trace", row.trace_seconds), ("lower", row.lowering_seconds), ("compile", row.compile_seconds))
    for station, seconds in stations:
        if seconds is not None:
            yield Span(station, row.name, start, seconds)
            start += seconds


@dataclasses.dataclass
class _Seen:
    """What has arrived of one execution.

    Attributes:
      total: how many steps it has, or None.
      first: when its first event arrived.
      at_first: the last step that arrived then: several may arrive at once.
      last: when its newest event arrived.
      newest: the last step that has arrived.
    """

    total: int | None
    first: float
    at_first: int
    last: float
    newest: int

    def add(self, steps: np.ndarray, times: np.ndarray) -> None:
        """Take up events."""
        self.at_first = max(self.at_first, int(steps[times == self.first].max(initial=-1)))
        self.last = max(self.last, float(times[-1]))
        self.newest = max(self.newest, int(steps.max()))


def _runs(found: Iterable[Segment], ends: list[float]) -> Iterable[Run]:
    """The executions of outermost loops."""
    seen: dict[tuple[str, int], _Seen] = {}
    for segment in found:
        if segment.fields["kind"] not in ("carry", "output") or segment.fields["outer"].shape[1]:
            continue
        for call, steps, times in _executions(segment):
            first = float(times[0])
            total = segment.fields["total"]
            total = total[0] if isinstance(total, list) else total
            seen.setdefault((segment.fields["path"], call), _Seen(total, first, -1, first, -1)).add(steps, times)
    for (path, call), own in seen.items():
        several = own.newest > own.at_first and own.last > own.first
        pace = (own.last - own.first) / (own.newest - own.at_first) if several else None
        # It began when the program was there, and the loop before it was done.
        start = max((end for end in ends if end <= own.first), default=own.first)
        ends = [*ends, own.last]
        yield Run("execute", path, start, own.last - start, call, own.first, own.newest + 1, own.total, pace)


def _executions(segment: Segment) -> Iterable[tuple[int, np.ndarray, np.ndarray]]:
    """Each execution among some events, with steps and times."""
    n = row_count(segment.at)
    calls, steps, times = (np.broadcast_to(segment.fields[name], n) for name in ("call", "step", "time"))
    by_call = np.argsort(calls, kind="stable")
    edges = np.flatnonzero(np.diff(calls[by_call])) + 1
    return [(int(calls[rows[0]]), steps[rows], times[rows]) for rows in np.split(by_call, edges)]
