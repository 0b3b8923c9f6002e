"""Rows that come one by one, and the same in flushes, make one recording: that which a plain reading makes of them."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pandas as pd
import pytest
from core.flushes import Row, flushed, is_sent, one_by_one, random_times, story

import jaxtap as tap
from jaxtap._config import Host
from jaxtap._emit import Entry
from jaxtap._lens import Lens
from jaxtap._router import router

SEEDS = range(40)


def recorded(seed: int, how: Any, **host: Any) -> tuple[tap.FlightRecorder, list[Row]]:
    lens, rows = story(seed)
    if host:
        lens = Lens(lens.view, Host(**host), tap.FlightRecorder())
    how(lens, rows, random_times(rows, seed))
    assert lens.recorder is not None
    return lens.recorder, rows


def reports(report: tap.Report) -> Any:
    return report.loops, report.points, report.notes


@pytest.mark.parametrize("seed", SEEDS)
def test_flushes_make_the_same_recording(seed: int) -> None:
    (one, _), (other, _) = recorded(seed, one_by_one), recorded(seed, flushed)
    assert len(one.events) == len(other.events) == len(list(one.events))
    for a, b in zip(one.events, other.events, strict=True):
        assert (a.path, a.step, a.lane, a.outer, a.call, a.kind) == (b.path, b.step, b.lane, b.outer, b.call, b.kind)
        assert [x.tobytes() for x in a.value] == [x.tobytes() for x in b.value]
    assert reports(one.report()) == reports(other.report())
    pd.testing.assert_frame_equal(one.df().drop(columns="time"), other.df().drop(columns="time"))


class Plain:
    """A plain reading of rows, one after the other: which execution each is of, and what was due."""

    def __init__(self) -> None:
        self.running: dict[Any, list[int]] = {}
        self.calls: collections.Counter[str] = collections.Counter()
        self.points: dict[Any, tuple[int, tuple[int, ...]]] = {}
        self.expected: collections.Counter[str] = collections.Counter()

    def call(self, name: str, row: Row) -> int:
        return self._loop(name, row) if isinstance(row.entry, Entry) else self._point(name, row)

    def _loop(self, name: str, row: Row) -> int:
        entry = row.entry
        assert isinstance(entry, Entry)
        step = abs(row.count) - 1
        running = self.running.get(entry.loop)
        if running is None or (is_sent(row) and step <= running[1]):
            running = self.running[entry.loop] = [self.calls[name], -1]
            self.calls[name] += 1
        if is_sent(row):
            running[1] = step
        if row.count <= 0 or row.count == entry.site.total:
            del self.running[entry.loop]
            sampled = -(-(step + 1) // entry.sample_every)
            of_all = int(np.prod(entry.lanes)) * sampled
            self.expected[name] += entry.kinds * (of_all if row.events is None else row.events)
        return running[0]

    def _point(self, name: str, row: Row) -> int:
        call, last = self.points.get(name, (-1, ()))
        if call < 0 or not row.outer or row.outer[:-1] != last[:-1] or row.outer[-1] <= last[-1]:
            call += 1
        self.points[name] = call, row.outer
        return call


def lanes_of(row: Row, lanes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [index for index in np.ndindex(lanes) if row.mask is None or row.mask[index]]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recording_is_what_a_plain_reading_says(seed: int) -> None:
    recorder, rows = recorded(seed, flushed)
    plain, expected = Plain(), []
    addresses = {row.entry.path: None for row in rows}
    names = {path: f"{path[0].op}[{i}]" for i, path in enumerate(addresses)}  # pyright: ignore[reportAttributeAccessIssue]
    for row in rows:
        name = names[row.entry.path]
        call = plain.call(name, row)
        is_loop = isinstance(row.entry, Entry)
        if is_loop and not is_sent(row):
            continue
        steps = (*row.outer, abs(row.count) - 1) if is_loop else row.outer or (-1,)
        for part in row.entry.parts:
            place = [(name, part.site.kind, steps[-1], steps[:-1], call, lane) for lane in lanes_of(row, part.lanes)]
            expected += place
    found = [(e.path, e.kind, e.step, e.outer, e.call, e.lane) for e in recorder.events]
    assert found == expected
    report = recorder.report()
    assert {loop.path: loop.expected for loop in report.loops} == {name: plain.expected[name] for name in plain.calls}
    assert {loop.path: loop.executions for loop in report.loops} == dict(plain.calls)
    of_loops = sum(loop.delivered + loop.partial for loop in report.loops)
    assert of_loops + sum(point.events for point in report.points) == len(found) > 10


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_functions_are_called_in_the_order_of_steps(seed: int) -> None:
    told: list[tap.TapEvent] = []
    recorder, _ = recorded(seed, flushed, on_step=told.append, on_ys=told.append)
    router.drain()
    assert told == list(recorder.events)


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_any_part_of_a_recording_is_part_of_the_whole(seed: int) -> None:
    recorder, _ = recorded(seed, flushed)
    events = list(recorder.events)
    random = np.random.default_rng(seed)
    for i in random.integers(-len(events), len(events), 20).tolist():
        assert recorder.events[i] == events[i]
        assert recorder.events[i:] == events[i:] and recorder.events[:i:3] == events[:i:3]
    for index in (len(events), -len(events) - 1):
        with pytest.raises(IndexError, match=f"there are {len(events)} events"):
            recorder.events[index]
