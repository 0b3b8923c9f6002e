"""Where in the gradient pass cotangents turn bad: a tripwire tells of the first step, not of all that follow."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxtap._chunks import Chunk


class Turned:
    """Keeps, for each loop and tap, in which lanes the last cotangent was not finite."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[int, np.ndarray]] = {}

    def first(self, chunk: Chunk, path: str) -> Chunk | None:
        """Rows and lanes whose cotangent was finite at the step before in the gradient pass; None for none."""
        lanes, entry = chunk.entry.parts[0].lanes, chunk.entry
        masks = np.ones((len(chunk), *lanes), bool) if chunk.mask is None else chunk.mask.reshape(len(chunk), *lanes)
        kept = np.stack([
            self._turn((path, entry.tap, entry.device, *steps[:-1]), steps[-1], mask)  # pyright: ignore[reportAttributeAccessIssue]
            for steps, mask in zip(chunk.outer.tolist(), masks, strict=True)
        ])  # fmt: skip
        rows = kept.reshape(len(chunk), -1).any(axis=1)
        if not rows.any():
            return None
        columns = {name: getattr(chunk, name)[rows] for name in ("counts", "outer", "order", "times")}
        return dataclasses.replace(chunk, mask=kept[rows], arrays=[array[rows] for array in chunk.arrays], **columns)

    def _turn(self, key: Any, step: int, mask: np.ndarray) -> np.ndarray:
        last_step, last = self._last.get(key, (None, None))
        self._last[key] = (step, mask)
        return mask & ~last if last is not None and last_step == step + 1 else mask
