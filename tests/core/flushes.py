"""Random programs as the host hears of them: rows of loops and points, one by one and gathered into flushes."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import numpy as np

import jaxtap as tap
from jaxtap._active import Key
from jaxtap._chunks import Chunk
from jaxtap._config import Host, View
from jaxtap._emit import Entry, Part, PointEntry, Speaker
from jaxtap._lens import Lens
from jaxtap._mark import Root, Site


def part(kind: str, lanes: tuple[int, ...], total: int | None, leaves: int, name: str) -> Part:
    """A payload of some leaves."""
    site = Site(name, kind, f"file.py:1 ({name})", tuple(f"{name}.{i}" for i in range(leaves)), total, None)
    treedef = jax.tree_util.tree_structure(tuple(range(leaves)))
    return Part(site, lanes, treedef, (None,) * leaves, (), site.names)


def path(name: str) -> tuple[Root, ...]:
    return (Root(name, f"file.py:{name}"),)


def loop(
    key: Key, name: str, *, total: int | None = None, every: int = 1, depth: int = 0, lanes: tuple[int, ...] = ()
) -> Entry:
    """The host end of a loop that sends its carry, and its outputs where it has no trip count."""
    parts = (part("carry", lanes, total, 2, name), *((part("output", lanes, total, 1, name),) if total else ()))
    return Entry(
        key=key,
        path=path(name),
        loop=object(),
        site=parts[0].site,
        sample_every=every,
        num_outer=depth,
        masked=bool(lanes) and total is None,
        parts=parts,
        kinds=len(parts),
        shared=0,
        lanes=lanes,
        speaker=Speaker(),
    )


def point(key: Key, name: str, depth: int, lanes: tuple[int, ...] = ()) -> PointEntry:
    """The host end of a marked value."""
    own = part("mark", lanes, None, 1, name)
    return PointEntry(key, path(name), own.site, -1, depth, bool(lanes), (own,), lanes, Speaker())


@dataclasses.dataclass
class Row:
    """What a single crossing carries, and a row of a chunk."""

    entry: Entry | PointEntry
    count: int
    outer: tuple[int, ...]
    mask: np.ndarray | None
    events: int | None
    arrays: list[np.ndarray]

    def single(self, now: float) -> tuple[Any, ...]:
        """The row as a crossing of its own; one that carries nothing comes without a payload."""
        entry, arrays = self.entry, self.arrays
        head: list[Any] = [np.int32(step) for step in self.outer]
        if isinstance(entry, Entry):
            head = [self.count, *head]
            if entry.masked:
                head += [self.mask, np.array(self.events)]
            if not is_sent(self):
                entry, arrays = closing(entry), []
        elif entry.masked:
            head.append(self.mask)
        return (entry, now, len(head) + len(arrays), *head, *arrays)


_closing: dict[Entry, Entry] = {}


def closing(entry: Entry) -> Entry:
    """The host end of a loop's last crossing, where it carries no payload."""
    return _closing.setdefault(entry, dataclasses.replace(entry, parts=()))


def is_sent(row: Row) -> bool:
    """Whether a row of a loop carries events."""
    step = abs(row.count) - 1
    ran = row.mask is None or bool(row.mask.any())
    return step >= 0 and step % row.entry.sample_every == 0 and ran  # pyright: ignore[reportAttributeAccessIssue]


class Story:
    """Rows of a nest of loops, as a program would send them; now and then it is cut off."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.rows: list[Row] = []

    def values(self, entry: Entry | PointEntry) -> list[np.ndarray]:
        leaves = [part.lanes for part in entry.parts for _ in part.restores]
        return [self.random.normal(size=lanes).astype(np.float32) for lanes in leaves]

    def run(self, loops: list[Entry], points: list[PointEntry], outer: tuple[int, ...] = ()) -> bool:
        """Run the first of the loops, in each step the others; returns whether it came to its end."""
        entry, inner = loops[0], loops[1:]
        steps = entry.site.total or int(self.random.integers(0, 7))
        until = self.random.integers(0, steps + 1, entry.lanes)
        if entry.masked and steps:
            until.flat[0] = steps
        sent = 0
        for step in range(steps):
            if self.random.random() < 0.03:
                return False
            if inner and not self.run(inner, points, (*outer, step)):
                return False
            for value in points if not inner else ():
                self.point(value, (*outer, step))
            mask = step < until if entry.masked else None
            last = step + 1 == steps
            sampled = step % entry.sample_every == 0
            sent += int(mask.sum()) if mask is not None and sampled else 0
            if sampled or last:
                count = -(step + 1) if last and entry.site.total is None else step + 1
                events = sent if entry.masked else None
                self.rows.append(Row(entry, count, outer, mask, events, self.values(entry)))
        if not steps:
            mask = np.zeros(entry.lanes, bool) if entry.masked else None
            self.rows.append(Row(entry, 0, outer, mask, 0 if entry.masked else None, self.values(entry)))
        return True

    def point(self, entry: PointEntry, steps: tuple[int, ...]) -> None:
        if self.random.random() < 0.5:
            mask = self.random.random(entry.lanes) < 0.5 if entry.masked else None
            if mask is None or mask.any():
                self.rows.append(Row(entry, 0, steps[: entry.num_steps], mask, None, self.values(entry)))


def story(seed: int) -> tuple[Lens, list[Row]]:
    """A lens, and rows of several programs: loops that are alike share an address."""
    view = View()
    lens = Lens(view, Host(), tap.FlightRecorder())
    key = Key(view)
    told = Story(seed)
    every = int(told.random.integers(1, 4))
    lanes = ((), (3,), (2, 2))[told.random.integers(3)]
    names = ["scan", "while", "while"] if told.random.random() < 0.5 else ["scan", "while", "inner"]
    nests = [
        [
            loop(key, names[0], total=int(told.random.integers(1, 6)), every=every, lanes=lanes),
            loop(key, names[1], every=every, depth=1, lanes=lanes),
            loop(key, names[2], every=every, depth=2, lanes=lanes),
        ],
        [loop(key, names[1], every=every, lanes=lanes)],
    ]
    points = [point(key, "residual", 3, lanes), point(key, "outer", 1)]
    for _ in range(8):
        nest = nests[told.random.integers(2)]
        told.run(nest, points if len(nest) > 1 else [])
        if told.random.random() < 0.3:
            told.point(point(key, "alone", 0), ())
    return lens, told.rows


def one_by_one(lens: Lens, rows: list[Row], times: list[float]) -> None:
    for row, now in zip(rows, times, strict=True):
        lens.take(row.single(now))


def flushed(lens: Lens, rows: list[Row], times: list[float]) -> None:
    """All rows that came at one time, as one flush."""
    for now in dict.fromkeys(times):
        own = [(place, row) for place, row in enumerate(rows) if times[place] == now]
        lens.take_chunks(chunks_of(own), now)


def chunks_of(rows: list[tuple[int, Row]]) -> list[Chunk]:
    """Rows as chunks, with their places; in no order of its own."""
    by_entry: dict[Any, list[tuple[int, Row]]] = {}
    for place, row in rows:
        by_entry.setdefault(row.entry, []).append((place, row))
    found = [_chunk(entry, own, len(by_entry) > 1) for entry, own in by_entry.items()]
    return found[::-1]


def _chunk(entry: Entry | PointEntry, own: list[tuple[int, Row]], several: bool) -> Chunk:
    rows = [row for _, row in own]
    masked = entry.masked
    return Chunk(
        entry=entry,
        counts=np.array([row.count for row in rows], np.int32),
        outer=np.array([row.outer for row in rows], np.int32).reshape(len(rows), -1),
        mask=np.stack([row.mask for row in rows]) if masked else None,  # pyright: ignore[reportArgumentType]
        events=np.array([row.events for row in rows]) if masked and isinstance(entry, Entry) else None,
        arrays=[np.stack(column) for column in zip(*(row.arrays for row in rows), strict=True)],
        order=np.array([place for place, _ in own]) if several else None,
    )


def random_times(rows: list[Row], seed: int) -> list[float]:
    """Times at which rows come, those of one flush at the same."""
    random = np.random.default_rng(seed)
    return (time.time() + np.cumsum(random.random(len(rows)) < random.choice([0.02, 0.2, 0.9]))).tolist()
