"""The host end of a crossing that several devices make: whose it is, and which lanes it holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxtap._emit import Entry, PointEntry, RingEntry
from jaxtap._guard import Guard

_guard = Guard()

# In place of the number of events so far, which no device knows of its own lanes.
UNCOUNTED = -1


def lane_arrays(entry: Any) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """The operands of a crossing that run over lanes: position, size of each mapped axis, and axes before those."""
    if not isinstance(entry, (Entry, PointEntry)):
        return
    # What is kept of a loop has a row for each step; a loop that made none sends a mask alone.
    lead = int(isinstance(entry, RingEntry) and bool(entry.parts))
    at = entry.num_scalars
    if entry.masked:
        yield at, entry.lanes, lead
        at += entry.num_mask_operands
    for part in entry.parts:
        for _ in part.restores:
            if part.lanes:
                yield at, part.lanes, lead
            at += 1


class FromShards:
    """Receives a crossing of each device, with the index of that device before it.

    Args:
      entry: the host end of the crossing.
      num_indices: how many operands add up to the index of the device.
      partitioned: whether XLA has partitioned the program, so that a device holds some of the lanes. Then a number of
        the lane at each place comes behind, for each array over lanes.
    """

    def __init__(self, entry: Any, num_indices: int, partitioned: bool = False) -> None:
        self._entry, self._num_indices = entry, num_indices
        self._has_lanes = partitioned and bool(entry.lanes)
        self._over_lanes = list(lane_arrays(entry)) if self._has_lanes else []
        self._entries: dict[int, Any] = {}

    def __call__(self, *arrays: np.ndarray) -> tuple[()]:
        """Receive a crossing. The program goes on whatever fails here."""
        try:
            device = sum(int(index.flat[0]) for index in arrays[: self._num_indices])
            entry = self._entries.get(device)
            if entry is None:
                masked = self._has_lanes or self._entry.masked
                entry = self._entries[device] = dataclasses.replace(self._entry, device=device, masked=masked)
            arrays = arrays[self._num_indices :]
            entry(*(self._of_all_lanes(arrays) if self._has_lanes else arrays))
        except Exception as error:  # noqa: BLE001 - the program goes on whatever fails here
            _guard.failed("receiving an event", error)
        return ()

    def _of_all_lanes(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The crossing as if this device had all lanes, under a mask that says which it has."""
        entry = self._entry
        split = len(operands) - len(self._over_lanes)
        arrays, numbers = list(operands[:split]), operands[split:]
        held = np.full(entry.lanes, bool(self._over_lanes))
        for (at, lanes, lead), number in zip(self._over_lanes, numbers, strict=True):
            arrays[at], own = _of_all(arrays[at], number, lanes, lead)
            held &= own
        scalars, payload = arrays[: entry.num_scalars], arrays[entry.num_scalars :]
        mask = held
        if entry.masked:
            mask, payload = payload[0] & held, payload[entry.num_mask_operands :]
        elif isinstance(entry, RingEntry) and payload:
            mask = np.broadcast_to(held, (len(payload[0]), *held.shape))
        count = [np.asarray(UNCOUNTED)] if isinstance(entry, Entry) else []
        return [*scalars, mask, *count, *payload]


def _of_all(array: np.ndarray, number: np.ndarray, lanes: tuple[int, ...], lead: int) -> tuple[np.ndarray, np.ndarray]:
    """An array of all lanes, with those that a device holds, and which those are.

    Args:
      array: what it holds.
      number: the number of the lane at each place.
      lanes: size of each mapped axis.
      lead: how many axes are before those.
    """
    rest = array.shape[lead + len(lanes) :]
    full = np.zeros((*array.shape[:lead], *lanes, *rest), array.dtype)
    if not array.size:
        return full, np.ones(lanes, bool)
    flat = number[(0,) * lead + (...,) + (0,) * len(rest)].ravel()
    places: list[np.ndarray] = []
    for i in range(len(lanes)):
        place, flat = np.divmod(flat, lane_stride(lanes, i))
        places.append(place)
    inside = np.logical_and.reduce([place < size for place, size in zip(places, lanes, strict=True)])
    own = tuple(place[inside] for place in places)
    before = (slice(None),) * lead
    full[(*before, *own)] = array.reshape(*array.shape[:lead], -1, *rest)[(*before, inside)]
    held = np.zeros(lanes, bool)
    held[own] = True
    return full, held


def lane_stride(lanes: tuple[int, ...], axis: int) -> int:
    """How far apart the numbers of neighbouring lanes are. Uneven shards reach beyond the end of an axis."""
    return math.prod(2 * size for size in lanes[axis + 1 :])


class FromFirst:
    """Receives a crossing that each device of a process makes with the same values: of the first one that comes.

    Args:
      entry: the host end of the crossing.
    """

    def __init__(self, entry: Any) -> None:
        self._entry = entry

    def __call__(self, index: np.ndarray, *arrays: np.ndarray) -> tuple[()]:
        """Receive a crossing."""
        return self._entry(*arrays) if self._entry.speaker.is_one(int(index.flat[0])) else ()
