"""The hooks on BlackJAX: for the time of a watch, what a kernel builds its info and its state with marks them.

Kernels look these constructors up in their module each time they are traced. So a sampler that was made before the
watch is seen, one that drops its info, too, and nothing of the sampler itself is touched.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxtap.internal import Guard, Patch, hook_settings, mark_for

HOOK = "jaxtap_blackjax"

# From what stands in BlackJAX to what shall stand there.
Around = Callable[[Any], Any]

_guard = Guard()


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a watch wants to be marked.

    Attributes:
      kind: of which part of BlackJAX: `"mcmc"`, `"smc"`, `"vi"`, `"nested"`, `"pathfinder"`.
      extra: names of more fields of the info or the state, at the end of a dotted name.
    """

    kind: str
    extra: tuple[str, ...] = ()


# A table of modules, names and what stands in their place.
Table = tuple[tuple[str, str, Around], ...]


def wanted(kind: str) -> bool:
    """Whether a watch that sees this thread looks at a part of BlackJAX."""
    return any(each.kind == kind for each in hook_settings(HOOK))


def mark(kind: str, name: str, value: Any) -> None:
    """Mark a value for the watches that look at a part of BlackJAX. What cannot be marked is said once, not raised."""
    _guard.call("marking a step", _bind, kind, name, value)


def _bind(kind: str, name: str, value: Any) -> None:
    arrays = jax.tree.map(jax.numpy.asarray, value)
    mark_for(HOOK, name, arrays, outside=("blackjax",), where=lambda how: how.kind == kind)


def then(found: Any, do: Callable[[Any], object]) -> Any:
    """A constructor that also hands what it has built to a function."""

    @functools.wraps(found, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        built = found(*args, **kwargs)
        do(built)
        return built

    return build


class Pair:
    """Two functions that a step calls one after the other: when the second returns, what both have returned is told.

    Args:
      kind: of which part of BlackJAX they are.
      finish: called with what both have returned.
      part: what is kept of what the first returns.
    """

    def __init__(
        self, kind: str, finish: Callable[[Any, Any], object], part: Callable[[Any], Any] = lambda built: built
    ) -> None:
        self._kind, self._finish, self._part = kind, finish, part
        self._noted = threading.local()

    def first(self, found: Any) -> Any:
        """What stands in place of the first."""
        return then(found, lambda built: self.note(self._part(built)))

    def last(self, found: Any) -> Any:
        """What stands in place of the second."""
        return then(found, self._end)

    def note(self, built: Any) -> None:
        """Keep what the first has returned until the second returns; None for nothing."""
        self._noted.first = built if wanted(self._kind) else None

    def _end(self, built: Any) -> None:
        first, self._noted.first = getattr(self._noted, "first", None), None
        if first is not None and wanted(self._kind):
            _guard.call("marking a step", self._finish, first, built)


def patches_for(table: Table) -> list[Patch]:
    """The patches of a table of modules, names and what stands in their place; those a release lacks are left out."""
    found: list[Patch] = []
    for module_name, name, around in table:
        try:
            module = importlib.import_module(f"blackjax.{module_name}")
        except ImportError:
            continue
        if hasattr(module, name):
            found.append(Patch(module, name, around))
    return found
