"""Where a piece of program stands when it is realised: the loops around it, and the lanes that run it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._emit import Speaker


@dataclasses.dataclass(frozen=True)
class Around:
    """What a loop knows of the loops around it.

    Attributes:
      steps: step of each enclosing loop, outermost first.
      total: trip count of the innermost, None where it is not known or there is none.
      lanes: sizes of the mapped axes that `mask` runs over, outermost first.
      mask: which lanes are still running, or None where all are.
      seals: whether the backend compiles loops as one piece, so that they need sealing.
      twin: whether this is a copy, of a loop or of a step, that is made for its events.
      returned: the stacked outputs that the loop itself has returned, where this is a copy of it; else None.
      hunt: the search for the equation that has made a value that is not finite, or None; within one, nothing else is
        sent.
      partitioned: whether XLA partitions the program over several devices.
      gathers: whether what is sent can wait in buffers.
      speaker: tells which of several devices is listened to.
    """

    steps: tuple[Any, ...] = ()
    total: int | None = None
    lanes: tuple[int, ...] = ()
    mask: Any = None
    seals: bool = False
    twin: bool = False
    hunt: Any = None
    returned: Any = None
    partitioned: bool = False
    gathers: bool = False
    speaker: Speaker = dataclasses.field(default_factory=Speaker)

    def inside(self, step: Any, total: int | None) -> Around:
        """The surroundings of what lies in a loop's body."""
        return dataclasses.replace(self, steps=(*self.steps, step), total=total, returned=None)

    def observing(self, step: Any, total: int | None) -> Around:
        """The same, in a copy of the step that is made for its events."""
        return dataclasses.replace(self.inside(step, total), twin=True)


def chosen(running: Any, new: Any, old: Any) -> Any:
    """New state for lanes that run, old state for the others, as JAX lowers a batched condition."""
    shape = running.shape + (1,) * (jnp.ndim(new) - running.ndim)
    return lax.select_n(jnp.broadcast_to(running.reshape(shape), jnp.shape(new)), old, new)


def aligned(around: Around, lanes: tuple[int, ...]) -> Any:
    """The mask of the surroundings, over the lanes of a loop in them."""
    if around.mask is None:
        return None
    if around.lanes == lanes[: len(around.lanes)]:
        mask = around.mask.reshape(around.lanes + (1,) * (len(lanes) - len(around.lanes)))
        return jnp.broadcast_to(mask, lanes)
    return jnp.broadcast_to(around.mask.any(), lanes)
