"""`lanes=`: which lanes of a vmap are sent. Decided on the device: the others do not cross."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtap._types import LanesSpec


class Span(NamedTuple):
    """A slice, in a form that can be a cache key."""

    start: int | None
    stop: int | None
    step: int | None


# What is chosen of each mapped axis, outermost first. Axes beyond are whole.
Lanes = tuple[Span | tuple[int, ...], ...] | None
# The lanes chosen of axes of known sizes, or None for all.
Chosen = tuple[tuple[int, ...], ...] | None

_RULE = (
    "lanes must be the index of a lane, a slice, a list of indices, or a tuple of these with one for each mapped axis, "
    "outermost first; None sends all"
)


def check_lanes(lanes: LanesSpec) -> Lanes:
    """A `lanes` as the user wrote it, checked.

    Raises:
      TypeError: if it is none of what `lanes` may be.
      ValueError: if it chooses nothing, whatever the size of the axis.
    """
    if lanes is None:
        return None
    return tuple(map(_axis, lanes if isinstance(lanes, tuple) else (lanes,)))


def _axis(spec: Any) -> Span | tuple[int, ...]:
    if isinstance(spec, slice):
        parts = [None if p is None else _index(p) for p in (spec.start, spec.stop, spec.step)]
        if parts[2] == 0:
            raise ValueError("the step of a slice in lanes must not be 0.")
        return Span(*parts)
    if isinstance(spec, (list, range)):
        if not spec:
            raise ValueError(f"a list in lanes must not be empty. {_RULE}.")
        return tuple(map(_index, spec))
    return (_index(spec),)


def _index(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{_RULE}; got {value!r}.")
    return value.__index__()


def chosen(lanes: Lanes, sizes: Sequence[int]) -> Chosen:
    """The lanes chosen of mapped axes of some sizes, outermost first, in ascending order; None for all.

    An index that an axis does not have chooses nothing of it: another loop may have it.
    """
    if lanes is None or not sizes:
        return None
    return tuple(_of_axis(lanes[i] if i < len(lanes) else Span(None, None, None), size) for i, size in enumerate(sizes))


def _of_axis(spec: Span | tuple[int, ...], size: int) -> tuple[int, ...]:
    every = range(size)
    if isinstance(spec, Span):
        return tuple(sorted(every[slice(*spec)]))
    return tuple(sorted({every[i] for i in spec if -size <= i < size}))


def is_empty(lanes: Chosen) -> bool:
    """Whether not one lane is chosen."""
    return lanes is not None and not all(lanes)


def picked(array: Any, lanes: Chosen) -> Any:
    """What an array, whose first axes are the mapped ones, holds of the chosen lanes."""
    if lanes is None:
        return array
    for axis, indices in enumerate(lanes):
        if len(indices) != array.shape[axis]:
            array = array[(slice(None),) * axis + (_subscript(np.array(indices)),)]
    return array


def _subscript(indices: np.ndarray) -> slice | np.ndarray:
    """Ascending indices, as a slice where they are evenly spaced: XLA reads that in place."""
    steps = np.unique(np.diff(indices))
    if len(indices) == 0 or len(steps) > 1:
        return indices
    return slice(int(indices[0]), int(indices[-1]) + 1, int(steps[0]) if len(steps) else 1)


def mask_of(lanes: Chosen, sizes: Sequence[int]) -> np.ndarray:
    """Which lanes are chosen, over all of them."""
    found = np.ones(tuple(sizes), bool) if lanes is None else np.zeros(tuple(sizes), bool)
    if lanes is not None:
        found[np.ix_(*lanes)] = True
    return found
