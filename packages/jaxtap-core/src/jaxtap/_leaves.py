"""Leaves with names: what a selector receives, and how a name finds its leaf."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax

_PART = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def type_text(dtype: Any, shape: Sequence[int]) -> str:
    """A dtype and a shape as JAX writes them, such as `float32[3,4]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"


class SelectError(ValueError):
    """A selector could not be applied to a loop; says which loop, where it is, and what its leaves are.

    >>> import jax
    >>> try:
    ...     with record(select=lambda leaves: leaves["y"]):
    ...         y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    ... except SelectError as error:
    ...     str(error).partition(". It raised")[0].partition("whose ")[2]
    'carry leaves are: 0: i, 1: x'
    """


def parts(name: str) -> tuple[str, ...]:
    """A dotted name in its parts: `"carry[0]['a'].b"` is `("carry", "0", "a", "b")`."""
    return tuple(part.strip("[]").strip("'\"") for part in _PART.findall(name))


def matches(names: Sequence[str], wanted: str) -> list[int]:
    """Indices of the names that end in `wanted`, compared part by part.

    >>> matches(["carry[0].position", "carry[1].step_size"], "step_size")
    [1]
    """
    tail = parts(wanted)
    return [i for i, name in enumerate(names) if parts(name)[-len(tail) :] == tail]


def nearest(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like `wanted`, for messages."""
    last = {name: parts(name)[-1] if parts(name) else name for name in names}
    close = difflib.get_close_matches(parts(wanted)[-1], list(last.values()), n=count, cutoff=0.4)
    return [name for name, end in last.items() if end in close][:count] or list(last)[:count]


class Leaves(tuple[Any, ...]):
    """The flat leaves of a loop's state, in the order of the user's own pytree, with their names.

    A tuple in every way: index it, iterate it. It also answers `leaves["step_size"]`, `leaves.names` and
    `leaves.tree()`.

    >>> leaves = Leaves([1.0, 2.0], ["carry.position", "carry.step_size"])
    >>> leaves[0], leaves["step_size"]
    (1.0, 2.0)
    """

    names: tuple[str, ...]
    _treedef: Any

    def __new__(cls, values: Iterable[Any], names: Iterable[str], treedef: Any = None) -> Leaves:
        self = super().__new__(cls, values)
        self.names = tuple(names)
        self._treedef = treedef
        return self

    def __getitem__(self, key: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - accepts more
        """A leaf by index, or by the end of its dotted name.

        Raises:
          KeyError: if no leaf, or more than one, ends in that name.
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        found = matches(self.names, key)
        if len(found) == 1:
            return super().__getitem__(found[0])
        if not found:
            raise KeyError(f"no leaf is named {key!r}; nearest: {', '.join(nearest(key, self.names))}")
        raise KeyError(f"{key!r} is the end of several names: {', '.join(self.names[i] for i in found)}")

    def tree(self) -> Any:
        """The leaves in the user's own pytree.

        Raises:
          ValueError: where the structure is not known.
        """
        if self._treedef is None:
            raise ValueError(
                "the structure of this loop's state is not known here; use leaves[i], leaves['name'] or leaves.names"
            )
        return jax.tree_util.tree_unflatten(self._treedef, list(self))

    def __reduce__(self) -> Any:
        return (tuple, (list(self),))
