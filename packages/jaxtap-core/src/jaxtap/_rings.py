"""The newest steps of a loop, kept on the device until something happens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._payload import Emitter, Read, payload

Ring = list[Any]


def start(emitter: Emitter, read: Read, masked: bool) -> Ring:
    """An empty ring for what a lens sends of a loop: a row for each step kept.

    Where lanes run different numbers of steps, it starts with the step that each row holds of each lane, -1 for none:
    of a lane that has finished, its own newest steps are kept.
    """
    rows = emitter.view.last
    assert rows is not None
    shapes = jax.eval_shape(lambda: payload(emitter, read)[0])
    steps = [jnp.full((rows, *emitter.sent_lanes), -1, jnp.int32)] if masked else []
    return [*steps, *(jnp.zeros((rows, *s.shape), s.dtype) for s in shapes)]


def put(ring: Ring, emitter: Emitter, i: Any, mask: Any, read: Read) -> Ring:
    """The ring after step `i`."""
    rows, every = emitter.view.last, emitter.view.sample_every

    def write(ring: Ring) -> Ring:
        slot = i // every % rows
        values = [*([] if mask is None else [jnp.full(mask.shape, i, jnp.int32)]), *payload(emitter, read)[0]]
        return [_put(kept, jnp.asarray(value), slot, mask) for kept, value in zip(ring, values, strict=True)]

    return write(ring) if every == 1 else lax.cond(i % every == 0, write, lambda ring: ring, ring)


def _put(kept: Any, value: Any, slot: Any, mask: Any) -> Any:
    """What is kept, with a row written for the lanes that have run."""
    if mask is not None:
        before = lax.dynamic_index_in_dim(kept, slot, keepdims=False, allow_negative_indices=False)
        ran = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
        value = jnp.where(ran, value, before)
    return lax.dynamic_update_index_in_dim(kept, value, slot, 0, allow_negative_indices=False)
