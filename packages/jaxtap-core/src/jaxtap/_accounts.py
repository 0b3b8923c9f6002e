"""The running account behind a report: executions as they begin and end, events as they arrive."""

from __future__ import annotations

import collections
import math

from jaxtap._emit import Entry
from jaxtap._mark import Site
from jaxtap._report import LoopReport, PointReport


class _Loop:
    """The account of one address."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.selected = False
        self.executions: collections.Counter[int] = collections.Counter()
        self.ended = 0
        self.expected = 0
        self.delivered = 0
        self.cut_off = 0
        self.sampled_out = 0


class _Point:
    """The account of one tap on one equation or marked value."""

    def __init__(self) -> None:
        self.events = 0
        self.call = -1
        self.last: tuple[int, ...] = ()


class Execution:
    """One execution of a loop.

    Attributes:
      call: which execution of its address it is.
      path: that address.
      last: the last step that has arrived.
      events: how many events have arrived.
      most: how many there were in the largest crossing.
    """

    __slots__ = ("account", "call", "events", "last", "most", "path")

    def __init__(self, account: _Loop, path: str, call: int) -> None:
        self.account = account
        self.path = path
        self.call = call
        self.last = -1
        self.events = 0
        self.most = 0


class Accounts:
    """Counts, for one lens. Not locked: the lens holds its lock."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}
        self._points: dict[tuple[str, str], tuple[Site, dict[tuple[int, int], _Point]]] = {}
        self._sites: dict[tuple[str, str], Site] = {}
        # Executions that have begun and not ended, by the loop they are of and the device.
        self.running: dict[tuple[object, int], Execution] = {}

    def saw(self, path: str, site: Site) -> None:
        """A loop was lowered."""
        self._sites[path, site.kind] = site
        self._loops.setdefault(path, _Loop(site))

    def saw_point(self, path: str, site: Site) -> None:
        """An equation or marked value was lowered."""
        self._points.setdefault((path, site.kind), (site, {}))

    def point(self, path: str, site: Site, listener: tuple[int, int], steps: tuple[int, ...], events: int) -> int:
        """Events of a point have arrived; returns which execution, of the loop around or of the point itself, it is.

        Args:
          path: its address.
          site: what is known of it.
          listener: which of the lens's taps has seen them, on which device.
          steps: step of each loop around.
          events: how many.
        """
        account = self._points.setdefault((path, site.kind), (site, {}))[1].setdefault(listener, _Point())
        if site.kind in ("backward", "cotangent"):
            steps = tuple(-step for step in steps)
        if account.call < 0 or not steps or steps[:-1] != account.last[:-1] or steps[-1:] <= account.last[-1:]:
            account.call += 1
        account.last = steps
        account.events += events
        return account.call

    def points(self) -> tuple[PointReport, ...]:
        """The accounts of single equations and marked values so far."""
        return tuple(
            PointReport(path, site.source, site.op, site.kind, sum(tap.events for tap in taps.values()))
            for (path, _), (site, taps) in self._points.items()
        )

    def begin(self, entry: Entry, path: str) -> Execution:
        """A loop has begun; if it had not ended before, it was cut off then."""
        account = self._loops.setdefault(path, _Loop(entry.site))
        account.selected = True
        # It may have been lowered under an equal lens before.
        for part in entry.parts:
            self._sites.setdefault((path, part.site.kind), part.site)
        before = self.running.get(entry.run)
        if before is not None:
            account.cut_off += before.events
        execution = self.running[entry.run] = Execution(account, path, account.executions[entry.device])
        account.executions[entry.device] += 1
        return execution

    def end(self, entry: Entry, execution: Execution, steps: int, events: int | None) -> None:
        """A loop has ended.

        Args:
          entry: static knowledge of its last crossing.
          execution: which execution it was.
          steps: how many steps it has made.
          events: under a mask, how many events it has sent in each payload; negative where no one has counted them.
        """
        if events is not None and events < 0:
            self.end_uncounted(entry, execution, execution.most * steps)
            return
        account = self._close(entry, execution)
        sampled = math.ceil(steps / entry.sample_every)
        lanes = math.prod(entry.lanes)
        account.expected += entry.kinds * (sampled * lanes if events is None else events) + entry.shared * sampled
        account.sampled_out += (entry.kinds * lanes + entry.shared) * (steps - sampled)

    def end_of_ring(self, entry: Entry, execution: Execution, steps: int) -> None:
        """A loop has ended of which the newest steps were kept."""
        self.end_uncounted(entry, execution, (entry.kinds * math.prod(entry.lanes) + entry.shared) * steps)

    def end_uncounted(self, entry: Entry, execution: Execution, of_all_steps: int) -> None:
        """A loop has ended of which the events that have come are those that were due.

        Args:
          entry: static knowledge of its last crossing.
          execution: which execution it was.
          of_all_steps: how many there would have been of all its steps.
        """
        account = self._close(entry, execution)
        account.expected += execution.events
        account.sampled_out += max(0, of_all_steps - execution.events)

    def _close(self, entry: Entry, execution: Execution) -> _Loop:
        """The account of an execution that has ended, with what it has sent."""
        del self.running[entry.run]
        account = execution.account
        account.ended += 1
        account.delivered += execution.events
        return account

    def sites(self) -> dict[tuple[str, str], Site]:
        """What is known of each address and kind."""
        return dict(self._sites)

    def report(self) -> tuple[LoopReport, ...]:
        """The accounts so far."""
        partial: dict[str, int] = {}
        for execution in self.running.values():
            partial[execution.path] = partial.get(execution.path, 0) + execution.events
        return tuple(
            LoopReport(
                path=path,
                source=loop.site.source,
                op=loop.site.op,
                internal=loop.site.internal,
                selected=loop.selected,
                executions=loop.executions.total(),
                unfinished=loop.executions.total() - loop.ended,
                expected=loop.expected,
                delivered=loop.delivered,
                partial=loop.cut_off + partial.get(path, 0),
                sampled_out=loop.sampled_out,
            )
            for path, loop in self._loops.items()
        )
