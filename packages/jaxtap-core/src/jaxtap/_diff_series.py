"""The events of two recordings, address by address, as columns, and which of them belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap._frame import Segment, row_count

# What tells events of one address and kind apart, before and after the steps of the loops around.
_BEFORE, _AFTER = ("call", "device", "process"), ("step",)


@dataclasses.dataclass
class Series:
    """The events of one address and kind in one recording.

    Attributes:
      order: int (n,), their places in the recording.
      outer: int (n, depth), steps of the enclosing loops.
      lanes: int (n, axes), index under `vmap`.
      places: int (n,) for each of call, device, process and step.
      leaves: each leaf of the values: (n, ...) where all are of one shape and dtype, else objects, None for none.
      named: whether leaves are called what the program calls them.
    """

    order: np.ndarray
    outer: np.ndarray
    lanes: np.ndarray
    places: dict[str, np.ndarray]
    leaves: dict[str, np.ndarray]
    named: bool

    def keys(self, depth: int, axes: int) -> np.ndarray:
        """What each event is told apart by, a row each: all its places."""
        columns = [self.places[name] for name in (*_BEFORE, *_AFTER)]
        wide = [_wide(self.outer, depth), _wide(self.lanes, axes)]
        return np.concatenate([np.stack(columns, axis=1), *wide], axis=1).astype(np.int64)


def _wide(table: np.ndarray, width: int) -> np.ndarray:
    return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=-1)


def series(found: Sequence[Segment], named: bool = True) -> dict[tuple[str, str], Series]:
    """The events of a recording by address and kind, in the order in which these were met."""
    groups: dict[tuple[str, str], list[Segment]] = {}
    for segment in found:
        groups.setdefault((segment.fields["path"], segment.fields["kind"]), []).append(segment)
    return {key: _joined(own, named) for key, own in groups.items()}


def named_as(own: Series, other: Series) -> Series:
    """A series whose leaves are called as those of another, where that knows and they are as many."""
    if own.named or not other.named or len(own.leaves) != len(other.leaves):
        return own
    return dataclasses.replace(own, leaves=dict(zip(other.leaves, own.leaves.values(), strict=True)))


def _joined(own: Sequence[Segment], named: bool) -> Series:
    order = np.concatenate([np.arange(s.at.start, s.at.stop) if isinstance(s.at, slice) else s.at for s in own])
    by_order = np.argsort(order, kind="stable")
    depth, axes = (max(segment.fields[name].shape[1] for segment in own) for name in ("outer", "lane"))
    names = dict.fromkeys(name for segment in own for name in segment.leaves)
    return Series(
        order=order[by_order],
        outer=np.concatenate([_wide(segment.fields["outer"], depth) for segment in own])[by_order],
        lanes=np.concatenate([_wide(segment.fields["lane"], axes) for segment in own])[by_order],
        places={
            name: np.concatenate([_column(segment.fields[name], row_count(segment.at)) for segment in own])[by_order]
            for name in (*_BEFORE, *_AFTER)
        },
        leaves={name: _leaf([(s.leaves.get(name), row_count(s.at)) for s in own])[by_order] for name in names},
        named=named,
    )


def _column(values: Any, n: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(values), n)


def _leaf(pieces: Sequence[tuple[Any, int]]) -> np.ndarray:
    arrays = [_array(values, n) for values, n in pieces]
    if len({(array.dtype, array.shape[1:]) for array in arrays}) == 1:
        return np.concatenate(arrays)
    return np.concatenate([_objects(list(array) if array.dtype != object else array, len(array)) for array in arrays])


def _array(values: Any, n: int) -> np.ndarray:
    """A leaf of `n` events as an array, of numbers where that can be."""
    if isinstance(values, jax.Array) and jnp.issubdtype(values.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(values))
    if isinstance(values, np.ndarray):
        return values
    if not isinstance(values, list):
        return _objects([values] * n, n)
    cells = [_array(cell[None], 1)[0] if hasattr(cell, "ndim") else cell for cell in values]
    forms = {(type(cell), getattr(cell, "dtype", None), getattr(cell, "shape", None)) for cell in cells}
    if len(forms) == 1 and isinstance(cells[0], (np.ndarray, np.generic, bool, int, float, complex)):
        return np.stack([np.asarray(cell) for cell in cells])
    return _objects(cells, n)


def _objects(cells: Any, n: int) -> np.ndarray:
    return np.fromiter(cells, object, n)


def matched(a: Series, b: Series) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two series that belong together, in the order of the first."""
    depth, axes = max(a.outer.shape[1], b.outer.shape[1]), max(a.lanes.shape[1], b.lanes.shape[1])
    keys, others = a.keys(depth, axes), b.keys(depth, axes)
    if keys.shape == others.shape and (keys == others).all():
        return np.arange(len(keys)), np.arange(len(keys))
    numbers = _numbers(np.concatenate([keys, others]))
    of_a, of_b = numbers[: len(keys)], numbers[len(keys) :]
    # Of several events with the same places, the first belongs to the first.
    numbers = _numbers(np.stack([numbers, np.concatenate([_repeats(of_a), _repeats(of_b)])], axis=1))
    where = np.full(len(numbers), -1)
    where[numbers[len(keys) :]] = np.arange(len(others))
    found = where[numbers[: len(keys)]]
    return np.flatnonzero(found >= 0), found[found >= 0]


def _numbers(keys: np.ndarray) -> np.ndarray:
    """A number for each row, the same for the same rows, less than the number of rows."""
    by_key = np.lexsort(keys.T)
    ranked = keys[by_key]
    begins = np.concatenate([[False], (ranked[1:] != ranked[:-1]).any(axis=1)])
    numbers = np.empty(len(keys), np.int64)
    numbers[by_key] = np.cumsum(begins)
    return numbers


def _repeats(numbers: np.ndarray) -> np.ndarray:
    """For each number, how many before it are the same."""
    by_number = np.argsort(numbers, kind="stable")
    ranked = numbers[by_number]
    at = np.arange(len(ranked))
    begins = np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(ranked)]
    repeats = np.empty(len(ranked), np.int64)
    repeats[by_number] = at - np.maximum.accumulate(np.where(begins, at, 0))
    return repeats
