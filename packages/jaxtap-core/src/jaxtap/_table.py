"""Events as columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxtap._events import TapEvent

Named = tuple[TapEvent, "tuple[str, ...] | None"]


def leaf_columns(value: Any) -> tuple[str, ...]:
    """What the leaves of a selected value are called: `value`, `value_0`, or the keys of a dictionary."""
    paths, _ = jax.tree_util.tree_flatten_with_path(value)
    return tuple(_column(path) for path, _ in paths)


def _column(path: Sequence[Any]) -> str:
    if not path:
        return "value"
    first, rest = path[0], jax.tree_util.keystr(tuple(path[1:]))
    name = getattr(first, "key", getattr(first, "name", None))
    return f"{name}{rest}" if isinstance(name, str) else f"value_{getattr(first, 'idx', name)}{rest}"


def _cell(leaf: Any) -> Any:
    return leaf.item() if isinstance(leaf, (np.ndarray, np.generic)) and leaf.ndim == 0 else leaf


def _spread(name: str, indices: Sequence[tuple[int, ...]]) -> dict[str, list[int | None]]:
    """Tuples of integers as one column, or one for each position where there are several."""
    width = max((len(t) for t in indices), default=0)
    names = [name] if width <= 1 else [f"{name}_{i}" for i in range(width)]
    return {n: [t[i] if i < len(t) else None for t in indices] for i, n in enumerate(names)}


def _where_several(name: str, values: list[int]) -> dict[str, list[int]]:
    """A column that is left out where it says the same in each row."""
    return {name: values} if len(set(values)) > 1 else {}


def rows(named: Iterable[Named]) -> dict[str, Any]:
    """Columns of a table of events, in order."""
    named = list(named)
    events = [event for event, _ in named]
    table: dict[str, Any] = {
        "path": [e.path for e in events],
        "kind": [e.kind for e in events],
        "step": [e.step for e in events],
        "total": [e.total for e in events],
        **_spread("lane", [e.lane for e in events]),
        **_spread("outer", [e.outer for e in events]),
        "call": [e.call for e in events],
        "time": [e.time for e in events],
        **_where_several("device", [e.device for e in events]),
        **_where_several("process", [e.process for e in events]),
    }
    leaves: dict[str, list[Any]] = {}
    for i, (event, names) in enumerate(named):
        flat = jax.tree_util.tree_leaves(event.value)
        for name, leaf in zip(names or leaf_columns(event.value), flat, strict=False):
            column = leaves.setdefault(f"leaf {name}" if name in table else name, [None] * len(named))
            column[i] = _cell(leaf)
    return table | leaves
