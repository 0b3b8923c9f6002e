"""Executions of a loop, told apart in a sequence of its rows, all at once."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from jaxtap._emit import Entry


@dataclasses.dataclass(slots=True)
class Execution:
    """One execution of a loop.

    Attributes:
      path: address of the loop.
      call: which execution of that address it is.
      last: the last step that has arrived.
      events: how many events have arrived.
      most: how many there were in the largest row.
    """

    path: str
    call: int
    last: int = -1
    events: int = 0
    most: int = 0


class Rows(NamedTuple):
    """Rows of one loop on one device, in the order in which they happened.

    Attributes:
      entry: static knowledge of the loop.
      steps: the step of each row.
      sent: how many events it holds.
      closes: whether the loop ended with it.
      events: under a mask, how many events each payload has sent so far, negative where no one has counted; or None.
    """

    entry: Entry
    steps: np.ndarray
    sent: np.ndarray
    closes: np.ndarray
    events: np.ndarray | None


def begins(rows: Rows, running: Execution | None) -> np.ndarray:
    """Which rows are the first of an execution: after an end, and where a step does not follow the one before.

    A loop that begins anew without having ended was cut off, as when a program fails.
    """
    at = np.arange(len(rows.steps))
    told = rows.sent > 0
    fresh = np.concatenate([[running is None], rows.closes[:-1]])
    began = np.maximum.accumulate(np.where(fresh, at, 0))
    newest = np.maximum.accumulate(np.where(told, at, -1))
    before = np.concatenate([[-1], newest[:-1]])
    last = np.where(before >= began, rows.steps[before], -1)
    if running is not None:
        last[(before < 0) & (began == 0)] = running.last
    return fresh | (told & (rows.steps <= last))


class Ends(NamedTuple):
    """What executions that have ended amount to.

    Attributes:
      ended: how many there are.
      delivered: how many events have come of them.
      expected: how many were due.
      sampled_out: steps, counted as events, that were left out.
      cut_off: events of executions that did not end, before the last one.
    """

    ended: int
    delivered: int
    expected: int
    sampled_out: int
    cut_off: int


class Stretch(NamedTuple):
    """Executions in a sequence of rows.

    Attributes:
      first: where each begins.
      last: where each has its last row.
      events: how many events have come of each.
      most: how many there were in its largest row.
      closed: whether it has ended.
    """

    first: np.ndarray
    last: np.ndarray
    events: np.ndarray
    most: np.ndarray
    closed: np.ndarray


def stretches(rows: Rows, begun: np.ndarray, running: Execution | None) -> Stretch:
    """The executions in `rows`; the first one may be the one that is running."""
    first = np.flatnonzero(begun)
    if not begun[0]:
        first = np.concatenate([[0], first])
    last = np.concatenate([first[1:], [len(begun)]]) - 1
    events, most = np.add.reduceat(rows.sent, first), np.maximum.reduceat(rows.sent, first)
    if running is not None and not begun[0]:
        events[0] += running.events
        most[0] = max(most[0], running.most)
    return Stretch(first, last, events, most, rows.closes[last])


def ends(rows: Rows, found: Stretch) -> Ends:
    """What the executions that have ended amount to, as `entry` says what was due."""
    entry, closed = rows.entry, found.closed
    of_ended, most = found.events[closed], found.most[closed]
    steps = rows.steps[found.last[closed]].astype(np.int64) + 1
    sampled = -(-steps // entry.sample_every)
    lanes = math.prod(entry.lanes)
    counted = sampled * lanes if rows.events is None else rows.events[found.last[closed]].astype(np.int64)
    due = entry.kinds * counted + entry.shared * sampled
    left_out = (entry.kinds * lanes + entry.shared) * (steps - sampled)
    if rows.events is not None:
        unknown = counted < 0
        due = np.where(unknown, of_ended, due)
        left_out = np.where(unknown, np.maximum(0, most * steps - of_ended), left_out)
    cut_off = found.events[:-1][~closed[:-1]]
    sums = (of_ended, due, left_out, cut_off)
    return Ends(int(closed.sum()), *(int(each.sum()) for each in sums))


def newest(rows: Rows, found: Stretch, running: Execution | None, path: str, call: int) -> Execution | None:
    """The last execution, if it has not ended."""
    if found.closed[-1]:
        return None
    told = np.flatnonzero(rows.sent[found.first[-1] :])
    last = int(rows.steps[found.first[-1] + told[-1]]) if len(told) else -1
    if not len(told) and running is not None and len(found.first) == 1:
        last = running.last
    return Execution(path, call, last, int(found.events[-1]), int(found.most[-1]))
