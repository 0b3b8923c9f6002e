"""Where events go: functions take them one by one, sinks many at once."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

from jaxtap._tap_chunk import TapChunk


@runtime_checkable
class Sink(Protocol):
    """Anything with a method `write`: pass it wherever `on_step` or `on_ys` is taken, in place of a function.

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


def is_sink(target: Any) -> TypeGuard[Sink]:
    """Whether it takes many events at once."""
    return callable(getattr(target, "write", None))
