"""A crossing with the newest steps of a loop, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtap._accounts import Accounts, Placed
from jaxtap._chunks import Chunk
from jaxtap._emit import RingEntry
from jaxtap._unpack import unpack


def placed(accounts: Accounts, entry: RingEntry, path: str, now: float, arrays: list[Any]) -> Placed | None:
    """The steps that are new, taken up by an account; None where there are none.

    Those that came with an earlier crossing are not new.
    """
    count, outer, of_lanes, _, rings = unpack(entry, arrays)
    done = abs(count)
    execution = accounts.running.get(entry.run)
    if execution is None or (count and done - 1 <= execution.last):
        execution = accounts.begin(entry, path)
    steps = _newest(entry, done, of_lanes)
    steps = steps[steps > execution.last]
    chunk = _chunk(entry, steps, outer, of_lanes, rings, now)
    sent = chunk.sent
    execution.events += int(sent.sum())
    execution.last = done - 1
    if count <= 0 or count == entry.site.total:
        accounts.end_of_ring(entry, execution, done)
    return Placed(chunk, execution.path, np.broadcast_to(execution.call, len(steps)), sent) if len(steps) else None


def _newest(entry: RingEntry, done: int, of_lanes: np.ndarray | None) -> np.ndarray:
    """The steps that a ring holds, of which `done` have run."""
    if of_lanes is not None:
        return np.unique(of_lanes[of_lanes >= 0])
    every, rows = entry.sample_every, entry.key.view.last or 1
    sampled = -(-done // every)
    return np.arange(max(0, sampled - rows) * every, done, every)


def _chunk(
    entry: RingEntry, steps: np.ndarray, outer: Sequence[int], of_lanes: np.ndarray | None, rings: Any, now: float
) -> Chunk:
    n, rows = len(steps), entry.key.view.last or 1
    slots = steps // entry.sample_every % rows
    mask = None
    if of_lanes is not None:
        mask = of_lanes[slots] == steps.reshape(n, *(1,) * (of_lanes.ndim - 1))
    return Chunk(
        entry=entry,
        counts=steps + 1,
        outer=np.broadcast_to(np.array(outer, np.int32), (n, len(outer))),
        mask=mask,
        events=None,
        arrays=[ring[slots] for ring in rings],
        order=np.arange(n),
        times=np.broadcast_to(np.float64(now), n),
    )
