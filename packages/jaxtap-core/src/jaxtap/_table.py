"""What the leaves of a selected value are called in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


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
