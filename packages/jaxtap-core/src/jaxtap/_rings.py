"""The newest steps of a loop, kept on the device until something happens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._payload import Emitter, Read, payload

Ring = list[Any]


def start(emitter: Emitter, read: Read, masked: bool) -> Ring:
    """An empty ring for what a lens sends of a loop: a row for each step kept, with the lane mask if there is one."""
    rows = emitter.view.last
    assert rows is not None
    shapes = jax.eval_shape(lambda: payload(emitter, read)[0])
    mask = [jnp.zeros((rows, *emitter.lanes), bool)] if masked else []
    return [*mask, *(jnp.zeros((rows, *s.shape), s.dtype) for s in shapes)]


def put(ring: Ring, emitter: Emitter, i: Any, mask: Any, read: Read) -> Ring:
    """The ring after step `i`."""
    rows, every = emitter.view.last, emitter.view.sample_every
    new = lambda: [*([] if mask is None else [mask]), *payload(emitter, read)[0]]  # noqa: E731

    def write(ring: Ring) -> Ring:
        slot = i // every % rows
        return [
            lax.dynamic_update_index_in_dim(kept, jnp.asarray(value), slot, 0, allow_negative_indices=False)
            for kept, value in zip(ring, new(), strict=True)
        ]

    return write(ring) if every == 1 else lax.cond(i % every == 0, write, lambda ring: ring, ring)
