"""Crossings as they arrived, and the events that they hold. Events are made only when someone asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxtap._emit import Entry, HuntEntry, PointEntry
from jaxtap._events import TapEvent


class Record(NamedTuple):
    """One crossing: the same step of all lanes, with every payload that a lens sends of it.

    Attributes:
      entry: static knowledge of the loop and of the payload.
      path: address, as the recording writes it.
      call: which execution of that address this is.
      time: arrival, in seconds since the epoch.
      step: 0-based iteration index.
      outer: step of each enclosing loop.
      mask: which lanes have run the step, or None for all.
      arrays: the payloads, one after the other.
    """

    entry: Entry | PointEntry
    path: str
    call: int
    time: float
    step: int
    outer: tuple[int, ...]
    mask: np.ndarray | None
    arrays: list[np.ndarray]

    def events(self) -> Iterator[TapEvent]:
        """The events, payload by payload and lane by lane."""
        at = 0
        for part in self.entry.parts:
            arrays = self.arrays[at : at + len(part.restores)]
            at += len(part.restores)
            for index in np.ndindex(part.lanes):
                if self.mask is not None and not np.any(self.mask[index]):
                    continue
                yield TapEvent(
                    path=self.path,
                    step=self.step,
                    value=part.value(arrays, index),
                    total=part.site.total,
                    kind="backward" if part.site.kind == "cotangent" else part.site.kind,
                    lane=part.lane(index),
                    outer=self.outer,
                    call=self.call,
                    time=self.time,
                    source=part.site.source,
                    device=self.entry.device,
                    process=self.entry.process,
                )

    def named_events(self) -> Iterator[tuple[TapEvent, tuple[str, ...]]]:
        """The events, each with what the leaves of its value are called in a table."""
        parts = self.entry.parts
        if len(parts) == 1:
            return ((event, parts[0].columns) for event in self.events())
        columns = {part.site.kind: part.columns for part in parts}
        return ((event, columns[event.kind]) for event in self.events())


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
