"""Attributes of libraries, replaced while a lens needs them to be, and put back exactly."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any

_ABSENT = object()


@dataclasses.dataclass(frozen=True)
class Patch:
    """What is to stand in place of an attribute of a class or module.

    Two patches are one where all three are equal: `around` is best a function of a module.

    Attributes:
      owner: the class or module.
      name: the attribute.
      around: from what stands there, to what shall. For a class it gets and gives what the class's own dictionary
        holds: a function, or a descriptor.
    """

    owner: Any
    name: str
    around: Callable[[Any], Any]


class _Place:
    """One attribute, and the patches on it in the order in which they came."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._own = vars(owner).get(name, _ABSENT)
        self._patches: list[tuple[Patch, Any]] = []
        self._users: dict[Patch, int] = {}

    def add(self, patch: Patch) -> None:
        self._users[patch] = self._users.get(patch, 0) + 1
        if self._users[patch] == 1:
            self._stack([*(patch for patch, _ in self._patches), patch])

    def remove(self, patch: Patch) -> bool:
        """Let go of a patch; whether no one needs any here now."""
        self._users[patch] -= 1
        if not self._users[patch]:
            del self._users[patch]
            self._stack([p for p, _ in self._patches if p != patch])
        return not self._users

    def _stack(self, patches: list[Patch]) -> None:
        expected = self._patches[-1][1] if self._patches else self._own
        if vars(self._owner).get(self._name, _ABSENT) is not expected:
            # Someone else has replaced it since. Theirs stays; ours in it does nothing without a lens.
            return
        self._patches = []
        now = self._found()
        for patch in patches:
            now = patch.around(now)
            self._patches.append((patch, now))
        if patches:
            setattr(self._owner, self._name, now)
        elif self._own is _ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own)

    def _found(self) -> Any:
        """What stands there without any patch, or what a class inherits."""
        if self._own is not _ABSENT:
            return self._own
        bases = self._owner.__mro__[1:] if isinstance(self._owner, type) else ()
        for base in bases:
            if self._name in vars(base):
                return vars(base)[self._name]
        return getattr(self._owner, self._name)


_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}


def install(patches: Iterable[Patch]) -> None:
    """Put patches in place, each on top of those that are there already."""
    with _lock:
        for patch in patches:
            key = (id(patch.owner), patch.name)
            if key not in _places:
                _places[key] = _Place(patch.owner, patch.name)
            _places[key].add(patch)


def uninstall(patches: Iterable[Patch]) -> None:
    """Take patches away, in whatever order; with the last of an attribute, it is what it was."""
    with _lock:
        for patch in reversed(list(patches)):
            key = (id(patch.owner), patch.name)
            if _places[key].remove(patch):
                del _places[key]
