"""What a single crossing carries, in its pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxtap._emit import Entry, HuntEntry, PointEntry


def unpack_point(
    entry: PointEntry | HuntEntry, arrays: Any
) -> tuple[tuple[int, ...], np.ndarray | None, list[np.ndarray]]:
    """A crossing of what is no loop in its pieces: steps of the loops around, mask, payload."""
    at = entry.num_steps
    mask = arrays[at] if entry.masked else None
    return tuple(map(int, arrays[:at])), mask, arrays[at + entry.masked :]


def unpack(entry: Entry, arrays: Any) -> tuple[int, tuple[int, ...], np.ndarray | None, int | None, list[np.ndarray]]:
    """A crossing in its pieces: steps done (negative if those were all), outer steps, mask, events so far, payload."""
    if not entry.num_outer and not entry.masked:
        return int(arrays[0]), (), None, None, arrays[1:]
    at = 1 + entry.num_outer
    outer = tuple(map(int, arrays[1:at]))
    mask = events = None
    if entry.masked:
        mask, events = arrays[at], int(arrays[at + 1])
        at += 2
    return int(arrays[0]), outer, mask, events, arrays[at:]
