"""Bounds of a recorder: the newest events stay, the others are counted, and memory does not grow."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from core.flushes import flushed, loop, random_times, story

import jaxtap as tap
from jaxtap._active import Key
from jaxtap._capacity import DEFAULT_BYTES, check_capacity
from jaxtap._chunks import Chunk
from jaxtap._config import Host, View
from jaxtap._lens import Lens


@pytest.mark.parametrize(
    ("capacity", "events", "nbytes"),
    [
        (None, None, DEFAULT_BYTES),
        (7, 7, DEFAULT_BYTES),
        ("1GiB", None, 1 << 30),
        ("500 MB", None, 500_000_000),
        ("1.5 kB", None, 1500),
        ("64B", None, 64),
        ((10, "2KiB"), 10, 2048),
    ],
)
def test_what_may_be_written(capacity: Any, events: int | None, nbytes: int) -> None:
    assert check_capacity(capacity) == (events, nbytes)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "", "1", "GiB", "1 XB", "0B", (1, 2), ("1B", 1), (1,), [1]])
def test_what_may_not(capacity: Any) -> None:
    with pytest.raises(ValueError, match=r"capacity must be .*'?got "):
        tap.FlightRecorder(capacity)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("capacity", [1, 2, 10, 57, "3 kB", (30, "6 kB"), 10_000])
def test_the_newest_are_kept(seed: int, capacity: Any) -> None:
    lens, rows = story(seed)
    flushed(lens, rows, random_times(rows, seed))
    assert lens.recorder is not None
    whole = list(lens.recorder.events)
    bounded = tap.FlightRecorder(capacity)
    lens, rows = story(seed)
    lens.recorder, bounded.feed = bounded, lens.digest
    times = random_times(rows, seed)
    limits = check_capacity(capacity)
    fits = limits.events is None or len(whole) <= limits.events
    if fits and limits.nbytes > 1_000_000:
        flushed(lens, rows, times)
        assert len(bounded.events) == len(whole) and bounded.dropped == 0
        return
    with pytest.warns(tap.JaxtapWarning, match="the recorder is full") as said:
        flushed(lens, rows, times)
        count = len(bounded.events)
    assert len(said) == 1 and count + bounded.dropped == len(whole) and count >= 1
    assert limits.events is None or count <= limits.events
    for own, event in zip(bounded.events, whole[-count:], strict=True):
        assert (own.path, own.step, own.lane, own.outer, own.kind) == (
            event.path, event.step, event.lane, event.outer, event.kind,
        )  # fmt: skip
    table = bounded.df()
    assert table["step"].tolist() == [event.step for event in bounded.events] and len(table) == count


def test_single_events_are_bounded_too() -> None:
    recorder = tap.FlightRecorder("100 kB")
    with pytest.warns(tap.JaxtapWarning, match="the recorder is full"):
        for step in range(1000):
            recorder(tap.TapEvent("scan[0]", step, np.zeros(100)))
    steps = [event.step for event in recorder.events]
    assert steps == list(range(1000 - len(steps), 1000)) and 30 < len(steps) < 100
    assert recorder.dropped == 1000 - len(steps)


def test_memory_stays_flat() -> None:
    """In bytes as the store counts them, and of the process."""
    view = View()
    with pytest.warns(tap.JaxtapWarning, match="the recorder is full"):
        recorder = tap.FlightRecorder("4 MiB")
        lens = Lens(view, Host(), recorder)
        entry = loop(Key(view), "scan")
        sizes = []
        for flush in range(200):
            steps = np.arange(flush * 5_000 + 1, (flush + 1) * 5_000 + 1, dtype=np.int32)
            arrays = [np.zeros(len(steps), np.float32), np.zeros(len(steps), np.float32)]
            lens.take_chunks(
                [Chunk(entry, steps, np.empty((len(steps), 0), np.int32), None, None, arrays)], time.time()
            )
            sizes.append(recorder._store.nbytes)
        assert len(recorder.events) + recorder.dropped == 1_000_000
    assert max(sizes) <= 4 << 20 and recorder.events[-1].step == 999_999
    assert len(recorder._store.batches) < 100 and sys.getsizeof(recorder._store.batches) < 10_000
