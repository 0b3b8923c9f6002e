"""The running account behind a report: executions as they begin and end, events as they arrive."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxtap._chunks import Chunk
from jaxtap._emit import Entry, PointEntry
from jaxtap._executions import Ends, Execution, Rows, begins, ends, newest, stretches
from jaxtap._mark import Path, Site
from jaxtap._merged import Merged
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

    def add(self, found: Ends) -> None:
        """Take up what executions that have ended amount to."""
        self.ended += found.ended
        self.delivered += found.delivered
        self.expected += found.expected
        self.sampled_out += found.sampled_out
        self.cut_off += found.cut_off


class _Point:
    """The account of one tap on one equation or marked value."""

    def __init__(self) -> None:
        self.events = 0
        self.call = -1
        self.last: tuple[int, ...] = ()


class Placed(NamedTuple):
    """Rows that have been taken up.

    Attributes:
      chunk: the rows.
      path: their address.
      calls: which execution each is of.
      sent: how many events it holds.
    """

    chunk: Chunk
    path: str
    calls: np.ndarray
    sent: np.ndarray


class _Run(NamedTuple):
    """Rows of one loop on one device, with where executions begin among them."""

    merged: Merged
    path: str
    account: _Loop
    rows: Rows
    begun: np.ndarray


class Accounts:
    """Counts, for one lens. Not locked: the lens holds its lock."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}
        self._points: dict[tuple[str, str], tuple[Site, dict[tuple[int, int], _Point]]] = {}
        self._sites: dict[tuple[str, str], Site] = {}
        # Executions that have begun and not ended, by the loop they are of and the device.
        self.running: dict[Hashable, Execution] = {}

    def saw(self, path: str, site: Site) -> None:
        """A loop was lowered."""
        self._sites[path, site.kind] = site
        self._loops.setdefault(path, _Loop(site))

    def saw_point(self, path: str, site: Site) -> None:
        """An equation or marked value was lowered."""
        self._points.setdefault((path, site.kind), (site, {}))

    # --- Rows ------------------------------------------------------------------------------------------------

    def take(self, chunks: Iterable[Chunk], text: Callable[[Path], str]) -> list[Placed]:
        """Rows have arrived; returns them with their addresses and executions.

        Args:
          chunks: the rows, with their order.
          text: writes out an address.
        """
        loops: dict[Hashable, list[Chunk]] = {}
        points: dict[Hashable, list[Chunk]] = {}
        paths: dict[Hashable, str] = {}
        for chunk in sorted(chunks, key=_first):
            entry = chunk.entry
            path = text(entry.path)
            if isinstance(entry, Entry):
                group, key = loops, entry.run
            else:
                group, key = points, (path, entry.site.kind, entry.tap, entry.device)
            paths[key] = path
            group.setdefault(key, []).append(chunk)
        placed = [row for key, own in points.items() for row in self._take_points(own, paths[key])]
        return placed + self._take_loops([self._run(own, paths[key]) for key, own in loops.items()])

    def _run(self, chunks: list[Chunk], path: str) -> _Run:
        """What arrived of one loop on one device."""
        merged = Merged(chunks)
        with_parts = [chunk for chunk in chunks if chunk.entry.parts] or chunks
        entry = with_parts[0].entry
        assert isinstance(entry, Entry)
        masked = all(chunk.events is not None for chunk in chunks)
        rows = Rows(
            entry,
            merged.gathered(lambda chunk: chunk.steps),
            merged.gathered(lambda chunk: chunk.sent),
            merged.gathered(lambda chunk: chunk.closes),
            merged.gathered(_events) if masked else None,
        )
        account = self._account(entry, path)
        return _Run(merged, path, account, rows, begins(rows, self.running.get(entry.run)))

    def _account(self, entry: Entry, path: str) -> _Loop:
        account = self._loops.setdefault(path, _Loop(entry.site))
        account.selected = True
        # It may have been lowered under an equal lens before.
        for part in entry.parts:
            self._sites.setdefault((path, part.site.kind), part.site)
        return account

    def _take_loops(self, runs: Sequence[_Run]) -> list[Placed]:
        placed: list[Placed] = []
        for run, numbers in zip(runs, self._numbers(runs), strict=True):
            entry = run.rows.entry
            running = self.running.pop(entry.run, None)
            found = stretches(run.rows, run.begun, running)
            if running is not None and run.begun[0]:
                run.account.cut_off += running.events
            if running is not None and not run.begun[0]:
                numbers = np.concatenate([[running.call], numbers])
            run.account.add(ends(run.rows, found))
            last = newest(run.rows, found, running, run.path, int(numbers[-1]))
            if last is not None:
                self.running[entry.run] = last
            if len(numbers) == 1:
                calls = np.broadcast_to(numbers[0], len(run.begun))
            else:
                calls = np.repeat(numbers, found.last - found.first + 1)
            columns = zip(run.merged.chunks, run.merged.scattered(calls), strict=True)
            placed += [Placed(chunk, run.path, own, chunk.sent) for chunk, own in columns]
        return placed

    def _numbers(self, runs: Sequence[_Run]) -> list[np.ndarray]:
        """For each run the numbers of the executions that begin in it. Runs with one address count together."""
        together: dict[tuple[str, int], list[int]] = {}
        for i, run in enumerate(runs):
            together.setdefault((run.path, run.rows.entry.device), []).append(i)
        numbers: list[np.ndarray] = [np.empty(0, np.int64)] * len(runs)
        for (_, device), own in together.items():
            executions = runs[own[0]].account.executions
            when = [runs[i].merged.order[runs[i].begun] for i in own]
            ranks = np.argsort(np.argsort(np.concatenate(when), kind="stable")) + executions[device]
            executions[device] += len(ranks)
            for i, part in zip(own, np.split(ranks, np.cumsum(list(map(len, when)))[:-1]), strict=True):
                numbers[i] = part
        return numbers

    def _take_points(self, chunks: list[Chunk], path: str) -> list[Placed]:
        """What arrived of one tap on one equation or marked value on one device."""
        entry = chunks[0].entry
        assert isinstance(entry, PointEntry)
        merged = Merged(chunks)
        account = self._point(path, entry.site, (entry.tap, entry.device))
        steps = merged.gathered(lambda chunk: chunk.outer)
        calls = account.call + np.cumsum(_new(account, entry.site, steps))
        account.call, account.last = int(calls[-1]), tuple(_signed(entry.site, steps)[-1].tolist())
        account.events += sum(int(chunk.sent.sum()) for chunk in chunks)
        columns = zip(chunks, merged.scattered(calls), strict=True)
        return [Placed(chunk, path, own, chunk.sent) for chunk, own in columns]

    def _point(self, path: str, site: Site, listener: tuple[int, int]) -> _Point:
        return self._points.setdefault((path, site.kind), (site, {}))[1].setdefault(listener, _Point())

    def point(self, path: str, site: Site, listener: tuple[int, int], steps: tuple[int, ...], events: int) -> int:
        """Events of a point have arrived; returns which execution, of the loop around or of the point itself, it is.

        Args:
          path: its address.
          site: what is known of it.
          listener: which of the lens's taps has seen them, on which device.
          steps: step of each loop around.
          events: how many.
        """
        account = self._point(path, site, listener)
        row = np.array([steps], np.int64).reshape(1, len(steps))
        account.call += int(_new(account, site, row)[0])
        account.last = tuple(_signed(site, row)[0].tolist())
        account.events += events
        return account.call

    # --- Rings -----------------------------------------------------------------------------------------------

    def begin(self, entry: Entry, path: str) -> Execution:
        """A loop has begun; if it had not ended before, it was cut off then."""
        account = self._account(entry, path)
        before = self.running.get(entry.run)
        if before is not None:
            account.cut_off += before.events
        execution = self.running[entry.run] = Execution(path, account.executions[entry.device])
        account.executions[entry.device] += 1
        return execution

    def end_of_ring(self, entry: Entry, execution: Execution, steps: int) -> None:
        """A loop has ended of which the newest steps were kept; the events that have come are those that were due."""
        del self.running[entry.run]
        events, of_all = execution.events, (entry.kinds * math.prod(entry.lanes) + entry.shared) * steps
        self._loops[execution.path].add(Ends(1, events, events, max(0, of_all - events), 0))

    # --- Afterwards ------------------------------------------------------------------------------------------

    def points(self) -> tuple[PointReport, ...]:
        """The accounts of single equations and marked values so far."""
        return tuple(
            PointReport(path, site.source, site.op, site.kind, sum(tap.events for tap in taps.values()))
            for (path, _), (site, taps) in self._points.items()
        )

    def sites(self) -> dict[tuple[str, str], Site]:
        """What is known of each address and kind."""
        return dict(self._sites)

    def report(self) -> tuple[LoopReport, ...]:
        """The accounts so far."""
        partial: collections.Counter[str] = collections.Counter()
        for execution in self.running.values():
            partial[execution.path] += execution.events
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
                partial=loop.cut_off + partial[path],
                sampled_out=loop.sampled_out,
            )
            for path, loop in self._loops.items()
        )


def _first(chunk: Chunk) -> int:
    return int(chunk.places[0])


def _events(chunk: Chunk) -> np.ndarray:
    assert chunk.events is not None
    return chunk.events


def _signed(site: Site, steps: np.ndarray) -> np.ndarray:
    """Steps as they grow: the gradient pass goes backward."""
    return -steps.astype(np.int64) if site.kind in ("backward", "cotangent") else steps


def _new(account: _Point, site: Site, steps: np.ndarray) -> np.ndarray:
    """At which rows another execution begins, of the loop around a point or of the point itself."""
    steps = _signed(site, steps)
    if not steps.shape[1]:
        return np.ones(len(steps), bool)
    known = len(account.last) == steps.shape[1]
    before = np.concatenate([[account.last] if known else steps[:1], steps[:-1]])
    new = (steps[:, :-1] != before[:, :-1]).any(axis=1) | (steps[:, -1] <= before[:, -1])
    new[0] |= account.call < 0 or not known
    return new
