"""The hook on Optax: while a lens wants it, calling a transformation's `update` marks what goes in and comes out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

from jaxtap.internal import ByIdentity, Guard, Patch, hook_settings, mark_for
from jaxtap_optax._inside import is_chain, label, limits, raw, with_stages
from jaxtap_optax._measure import arrays

HOOK = "jaxtap_optax.update"
MARK = "update"

_guard = Guard()


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which calls a lens wants.

    Attributes:
      depth: how many calls of other transformations may be around one.
      update: the update function whose calls alone are wanted; None for all.
    """

    depth: int = 0
    update: ByIdentity | None = None

    def wants(self, depth: int, update: Any) -> bool:
        """Whether a call is wanted."""
        mine = self.update is None or self.update.value is update
        return mine and (depth <= self.depth or self.update is not None)


class _Calls(threading.local):
    """The calls of transformations that are under way in this thread."""

    depth = 0
    nested = 0


_calls = _Calls()


@contextlib.contextmanager
def _call() -> Generator[tuple[int, int]]:
    depth = _calls.depth
    if depth == 0:
        _calls.nested = 0
    number, _calls.depth = _calls.nested, depth + 1
    _calls.nested += 1
    try:
        yield depth, number
    finally:
        _calls.depth = depth


def seen(update: Callable[..., Any], identity: Any = None) -> Callable[..., Any]:
    """An update function whose calls are marked for the lenses that want them.

    Args:
      update: the function.
      identity: what is compared with the function that a lens wants.
    """
    identity = update if identity is None else identity

    @functools.wraps(getattr(update, "func", update))
    def hooked(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        with _call() as (depth, number):
            wanted = [each for each in hook_settings(HOOK) if each.wants(depth, identity)]
            if not wanted:
                return update(updates, state, params, **extra)
            run, stages = _staged(update)
            new, new_state = run(updates, state, params, **extra)
            name = MARK if depth == 0 else f"{label(identity)}_{number}"
            value = {
                "grads": updates,
                "updates": new,
                "params": params,
                "state": new_state,
                "value": extra.get("value"),
                "stages": stages,
                "limits": limits(identity),
            }
            _guard.call("marking an update", _mark, name, value, depth, identity)
            return new, new_state

    vars(hooked)["jaxtap_identity"] = identity
    return hooked


def identity_of(tx: Any) -> Any:
    """What tells the calls of a transformation from those of others: its own update function, or itself."""
    update = raw(tx) if isinstance(tx, tuple) else tx
    return getattr(update, "jaxtap_identity", update)


def _mark(name: str, value: Any, depth: int, identity: Any) -> None:
    mark_for(HOOK, name, arrays(value), outside=("optax",), where=lambda wanted: wanted.wants(depth, identity))


def _staged(update: Any) -> tuple[Any, dict[str, Any]]:
    """An update function, and what fills with the updates after each of its stages if it is a chain's."""
    stages: dict[str, Any] = {}
    if not is_chain(update):
        return update, stages

    def around(name: str, stage: Any) -> Any:
        def run(updates: Any, *args: Any, **extra: Any) -> Any:
            new, new_state = stage(updates, *args, **extra)
            stages[f"{len(stages):02d} {name}"] = new
            return new, new_state

        return run

    return with_stages(update, around), stages


def _property(found: Any) -> Any:
    """In place of the field of a transformation: its function, hooked where a lens is open."""

    def get(self: Any) -> Any:
        update = found.__get__(self, type(self))
        is_seen = hasattr(update, "jaxtap_identity")
        return update if is_seen or not hook_settings(HOOK) else seen(update)

    return property(get)


def _method(found: Any) -> Any:
    """In place of the method of `optax.MultiSteps`, which is a class of its own."""

    @functools.wraps(found)
    def update(self: Any, updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return seen(functools.partial(found, self), self)(updates, state, params, **extra)

    return update


def patches() -> list[Patch]:
    """What is replaced in Optax while a lens is open."""
    import optax  # noqa: PLC0415 - importing this package loads no library; its user has

    return [
        Patch(optax.GradientTransformation, "update", _property),
        Patch(optax.MultiSteps, "update", _method),
    ]
