"""Where events go: functions take them one by one, sinks many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

from jaxtap._tap_chunk import TapChunk

if TYPE_CHECKING:
    from jaxtap._batches import Batch


@runtime_checkable
class Sink(Protocol):
    """Anything with a method `write` that cannot be called itself: pass it wherever `on_step` or `on_ys` is taken.

    `write` is called on jaxtap's own thread, with all events of one kind and place that arrived together. It may call
    JAX, block, or raise. What it returns is not looked at.

    >>> import jax, jax.numpy as jnp
    >>> class Means:
    ...     def write(self, chunk):
    ...         print(chunk.path, len(chunk), chunk.values["total"].mean())
    >>> isinstance(Means(), Sink)
    True
    """

    def write(self, chunk: TapChunk, /) -> object:
        """Take events."""
        ...


class TakesBatches:
    """A sink of jaxtap's own, which takes what arrived together in the order in which it happened.

    Attributes:
      within_s: for how many seconds what has arrived may wait for more.
    """

    within_s = 0.0

    def add(self, item: Batch) -> None:
        """Take events."""
        raise NotImplementedError


def is_sink(target: Any) -> TypeGuard[Sink]:
    """Whether it takes many events at once. What can be called like a function is one, whatever methods it has."""
    takes = callable(getattr(target, "write", None))
    return takes and (isinstance(target, TakesBatches) or not callable(target))


def check_target(argument: str, target: Any) -> Any:
    """What takes events, checked.

    Raises:
      TypeError: if it is neither None, a function nor a sink.
    """
    if target is not None and not callable(target) and not is_sink(target):
        raise TypeError(
            f"{argument} must be a function of an event, a sink with a method write(chunk), or None; got "
            f"{type(target).__name__}."
        )
    return target
