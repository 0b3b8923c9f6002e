"""The running account behind a report: executions as they begin and end, events as they arrive."""

from __future__ import annotations

import dataclasses
import math

from jaxtap._emit import Entry
from jaxtap._mark import Site
from jaxtap._report import LoopReport


@dataclasses.dataclass
class _Loop:
    """The account of one address."""

    site: Site
    selected: bool = False
    executions: int = 0
    ended: int = 0
    expected: int = 0
    delivered: int = 0
    partial: int = 0
    sampled_out: int = 0


@dataclasses.dataclass
class _Execution:
    """One execution that has begun and not ended."""

    call: int
    last: int = -1
    events: int = 0


class Accounts:
    """Counts, for one lens. Not locked: the lens holds its lock."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}
        self._open: dict[object, _Execution] = {}

    def saw(self, path: str, site: Site) -> None:
        """A loop was lowered."""
        self._loops.setdefault(path, _Loop(site))

    def arrived(self, entry: Entry, path: str, count: int, events: int | None, sent: int) -> int:
        """A crossing came in; returns which execution of its address it belongs to.

        Args:
          entry: static knowledge of the crossing.
          path: address, as the recording writes it.
          count: steps done, negative or zero if those were all.
          events: under a mask, how many events the execution has sent so far in each payload.
          sent: how many events this crossing holds.
        """
        loop = self._loops.setdefault(path, _Loop(entry.site))
        loop.selected = True
        step = abs(count) - 1
        running = self._open.get(entry.loop)
        # The same loop beginning anew tells that its last execution was cut off.
        if running is None or (sent and step <= running.last):
            running = self._open[entry.loop] = _Execution(loop.executions)
            loop.executions += 1
        if sent:
            running.last = step
            running.events += sent
            loop.partial += sent
        if count <= 0:
            del self._open[entry.loop]
            loop.ended += 1
            loop.partial -= running.events
            loop.delivered += running.events
            self._settle(loop, entry, step + 1, events)
        return running.call

    def _settle(self, loop: _Loop, entry: Entry, steps: int, events: int | None) -> None:
        """An execution has ended after so many steps."""
        sampled = math.ceil(steps / entry.sample_every)
        lanes = math.prod(entry.lanes)
        loop.expected += entry.kinds * (sampled * lanes if events is None else events)
        loop.sampled_out += entry.kinds * (steps - sampled) * lanes

    def sites(self) -> dict[str, Site]:
        """Address and site of each loop met."""
        return {path: loop.site for path, loop in self._loops.items()}

    def report(self) -> tuple[LoopReport, ...]:
        """The accounts so far."""
        return tuple(
            LoopReport(
                path=path,
                source=loop.site.source,
                op=loop.site.op,
                selected=loop.selected,
                executions=loop.executions,
                unfinished=loop.executions - loop.ended,
                expected=loop.expected,
                delivered=loop.delivered,
                partial=loop.partial,
                sampled_out=loop.sampled_out,
            )
            for path, loop in self._loops.items()
        )
