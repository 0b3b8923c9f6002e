"""Two recordings compared: where they part, and what is around."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtap import _frame
from jaxtap._config import check_count
from jaxtap._diff_series import Series, matched, named_as, series
from jaxtap._diff_values import Tolerance, differing
from jaxtap._events import EARLY_KINDS, TapEvent
from jaxtap._partings import Parting, RecordingDiff
from jaxtap._read_jsonl import read_jsonl
from jaxtap._recorder import Events, FlightRecorder

# What users may compare.
RecordingSpec = FlightRecorder | Sequence[TapEvent] | str | os.PathLike[str]


def diff(
    a: RecordingSpec, b: RecordingSpec, *, rtol: float = 0.0, atol: float = 0.0, context: int = 3
) -> RecordingDiff:
    """Compare two recordings: the first step, address, lane and leaf where they part, with the values around it.

    For the same program with another seed, dtype, version of JAX, or on another machine. Events are matched by address,
    kind, `call`, `outer`, `step`, `lane`, `device` and `process`, not by their arrival. An event that one of them lacks
    is a difference, too, and so are leaves of another name, shape or dtype; values of different dtypes are compared as
    numbers. NaN is equal to NaN. Files and events on their own do not know what leaves are called in the program:
    those are matched by their position. Events of kind `"trace"` and `"compile"` are left out.

    Args:
      a: a recorder, events, or the path of a file that `JSONLWriter` wrote.
      b: the other one.
      rtol: relative tolerance: numbers are the same where `|a - b| <= atol + rtol * |b|`, as in `numpy.isclose`.
      atol: absolute tolerance. With both zero, each bit counts, so that -0.0 differs from 0.0.
      context: how many steps before and after the first difference are shown.

    Returns:
      What differs: false if nothing does; printed, it is a page.

    Raises:
      ValueError: for a tolerance that is negative or no number, or a `context` that is.
      TypeError: if one of the two is no recording.

    >>> import jax, jax.numpy as jnp
    >>> def run(rate):
    ...     with record(select="x") as rec:
    ...         jax.lax.scan(lambda x, t: (x - rate * x * t, None), jnp.float32(1.0), jnp.arange(4.0))
    ...     return rec
    >>> bool(diff(run(0.5), run(0.5)))
    False
    >>> diff(run(0.5), run(0.25), context=1)
    the recordings part at scan[0] step 1, x: 0.5 in a, 0.75 in b
          step           a           b
             0         1.0         1.0
      >      1         0.5        0.75
             2         0.0       0.375
    3 of 4 events differ
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not hasattr(value, "__float__") or not float(value) >= 0:
            raise ValueError(f"{name} must be a number of at least 0 (how far values may be apart); got {value!r}.")
    check_count("context", context, 0, "steps shown before and after a difference")
    pairs = _pairs(_series_of("a", a), _series_of("b", b))
    return _compared(pairs, Tolerance(rtol, atol), context)


def _series_of(name: str, recording: Any) -> dict[tuple[str, str], Series]:
    """The events of a recording by address and kind."""
    if isinstance(recording, Events):
        recording = recording.recorder
    if isinstance(recording, FlightRecorder):
        return series(recording.segments(lambda kind, _: kind not in EARLY_KINDS)[0])
    if isinstance(recording, (str, os.PathLike)):
        recording = read_jsonl(recording)  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(recording, Sequence) or not all(isinstance(event, TapEvent) for event in recording):  # pyright: ignore[reportUnknownVariableType]
        raise TypeError(
            f"{name} must be a recorder, a sequence of events, or the path of a file that JSONLWriter wrote; got "
            f"{type(recording).__name__}."  # pyright: ignore[reportUnknownArgumentType]
        )
    found, _ = _frame.of_events([event for event in recording if event.kind not in EARLY_KINDS])
    return series(found, named=False)


class _Pair(NamedTuple):
    """The events of one address and kind in both recordings, and which rows of these belong together."""

    path: str
    kind: str
    a: Series | None
    b: Series | None
    rows: tuple[np.ndarray, np.ndarray]


def _pairs(one: dict[tuple[str, str], Series], other: dict[tuple[str, str], Series]) -> list[_Pair]:
    found: list[_Pair] = []
    nothing = np.empty(0, np.int64)
    for path, kind in dict.fromkeys([*one, *other]):
        a, b = one.get((path, kind)), other.get((path, kind))
        if a is not None and b is not None:
            a, b = named_as(a, b), named_as(b, a)
        rows = (nothing, nothing) if a is None or b is None else matched(a, b)
        found.append(_Pair(path, kind, a, b, rows))
    return found


class _Timeline:
    """Where the events of `b` would be among those of `a`: after the one before them that both have."""

    def __init__(self, pairs: Sequence[_Pair]) -> None:
        both = [(pair.a.order[pair.rows[0]], pair.b.order[pair.rows[1]]) for pair in pairs if pair.a and pair.b]
        columns = [np.concatenate(column) if both else np.empty(0) for column in zip(*both, strict=True)]
        a, b = columns if columns else (np.empty(0), np.empty(0))
        by_b = np.argsort(b)
        self._a, self._b = a[by_b], b[by_b]

    def place(self, order: int) -> float:
        before = int(np.searchsorted(self._b, order)) - 1
        return float(self._a[before]) + 0.5 if before >= 0 else -0.5


@dataclasses.dataclass
class _Found:
    """What differs between two recordings of one address and kind.

    Attributes:
      places: where, in the order of the first recording.
      partings: what parts there.
      differing: how many events that both have differ.
      notes: what else, in sentences.
    """

    places: list[float]
    partings: list[Parting]
    differing: int
    notes: list[str]


def _compared(pairs: Sequence[_Pair], tolerance: Tolerance, context: int) -> RecordingDiff:
    timeline = _Timeline(pairs)
    found = [_of_address(pair, tolerance, timeline, context) for pair in pairs]
    places = [place for own in found for place in own.places]
    partings = [parting for own in found for parting in own.partings]
    by_place = sorted(range(len(places)), key=places.__getitem__)
    both = sum(len(pair.rows[0]) for pair in pairs)
    return RecordingDiff(
        partings=tuple(partings[i] for i in by_place),
        notes=tuple(note for own in found for note in own.notes),
        compared=both,
        differing=sum(own.differing for own in found),
        only_a=sum(len(pair.a.order) for pair in pairs if pair.a is not None) - both,
        only_b=sum(len(pair.b.order) for pair in pairs if pair.b is not None) - both,
    )


def _of_address(pair: _Pair, tolerance: Tolerance, timeline: _Timeline, context: int) -> _Found:
    found = _Found([], [], 0, [])
    for name, own, rows in (("a", pair.a, pair.rows[0]), ("b", pair.b, pair.rows[1])):
        alone = np.setdiff1d(np.arange(len(own.order)), rows) if own is not None else rows[:0]
        if own is not None and len(alone):
            order = int(own.order[alone[0]])
            found.places.append(order if name == "a" else timeline.place(order))
            found.partings.append(_parting(pair, own, int(alone[0]), None, f"only in {name}", (), context))
    if pair.a is None or pair.b is None:
        return found
    found.notes += _notes(pair, pair.a, pair.b)
    differ = np.zeros(len(pair.rows[0]), bool)
    for leaf in pair.a.leaves.keys() & pair.b.leaves.keys():
        elements = _elements(pair, pair.a, pair.b, leaf, tolerance)
        own = elements.reshape(len(elements), -1).any(axis=1)
        differ |= own
        if own.any():
            first = int(np.argmax(own))
            index = np.unravel_index(int(np.argmax(elements[first])), elements.shape[1:])
            row = int(pair.rows[0][first])
            found.places.append(int(pair.a.order[row]))
            where = tuple(map(int, index))
            found.partings.append(_parting(pair, pair.a, row, leaf, "differs", where, context))
    found.differing = int(differ.sum())
    return found


def _elements(pair: _Pair, a: Series, b: Series, leaf: str, tolerance: Tolerance) -> np.ndarray:
    """In which elements of a leaf the events that both have differ; all of them where shapes do."""
    x, y = a.leaves[leaf][pair.rows[0]], b.leaves[leaf][pair.rows[1]]
    if x.dtype != object and y.dtype != object and x.shape != y.shape:
        return np.ones((len(x),), bool)
    return differing(x, y, tolerance)


def _notes(pair: _Pair, a: Series, b: Series) -> Iterator[str]:
    """What differs in form, in sentences."""
    where = f"{pair.path} ({pair.kind})"
    for name, own, others in (("a", a, b), ("b", b, a)):
        missing = [leaf for leaf in own.leaves if leaf not in others.leaves]
        if missing:
            yield f"{where}: only {name} has {', '.join(missing)}"
    for leaf in a.leaves:
        if leaf not in b.leaves:
            continue
        x, y = a.leaves[leaf], b.leaves[leaf]
        if x.dtype != y.dtype and object not in (x.dtype, y.dtype):
            yield f"{where}: {leaf} is {x.dtype} in a, {y.dtype} in b"
        if x.shape[1:] != y.shape[1:] and object not in (x.dtype, y.dtype):
            yield f"{where}: {leaf} has shape {x.shape[1:]} in a, {y.shape[1:]} in b"


# --- What is around ------------------------------------------------------------------------------------------


def _parting(
    pair: _Pair, own: Series, row: int, leaf: str | None, what: str, index: tuple[int, ...], context: int
) -> Parting:
    step = int(own.places["step"][row])
    shown = leaf or next(iter(own.leaves), None)
    a, b = (_steps(each, own, row, shown, index) for each in (pair.a, pair.b))
    steps = sorted(a.keys() | b.keys())
    at = steps.index(step)
    around = tuple((s, a.get(s), b.get(s)) for s in steps[max(0, at - context) : at + context + 1])
    return Parting(
        path=pair.path,
        kind=pair.kind,
        step=step,
        lane=_places(own.lanes[row]),
        outer=_places(own.outer[row]),
        call=int(own.places["call"][row]),
        device=int(own.places["device"][row]),
        process=int(own.places["process"][row]),
        leaf=leaf,
        index=index,
        what=what,
        a=a.get(step),
        b=b.get(step),
        around=around,
    )


def _places(row: np.ndarray) -> tuple[int, ...]:
    """The places in a row of a table, which may be wider."""
    return tuple(row[row >= 0].tolist())


def _steps(series: Series | None, own: Series, row: int, leaf: str | None, index: tuple[int, ...]) -> dict[int, Any]:
    """What a leaf was at each step of the execution and lane that a row of a series is of."""
    if series is None or leaf not in series.leaves:
        return {}
    alike = np.ones(len(series.order), bool)
    for name in ("call", "device", "process"):
        alike &= series.places[name] == own.places[name][row]
    for mine, others in ((own.outer, series.outer), (own.lanes, series.lanes)):
        alike &= (others == mine[row]).all(axis=1) if mine.shape[1] == others.shape[1] else False
    rows = np.flatnonzero(alike)
    column = series.leaves[leaf]
    return {int(series.places["step"][i]): _element(column[i], index) for i in rows[::-1].tolist()}


def _element(value: Any, index: tuple[int, ...]) -> Any:
    if not isinstance(value, np.ndarray) or len(index) != value.ndim:
        return value
    return value[index] if all(i < size for i, size in zip(index, value.shape, strict=True)) else value
