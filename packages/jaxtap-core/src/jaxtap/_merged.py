"""Rows of several chunks in the order in which they happened, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxtap._chunks import Chunk


class Merged:
    """The rows of several chunks as one sequence. Of one chunk, they are that already."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self.order = chunks[0].places if len(chunks) == 1 else np.concatenate([chunk.places for chunk in chunks])
        self._permutation = None if len(chunks) == 1 else np.argsort(self.order, kind="stable")
        if self._permutation is not None:
            self.order = self.order[self._permutation]

    def gathered(self, column: Callable[[Chunk], np.ndarray]) -> np.ndarray:
        """A column of all rows, in order."""
        columns = [column(chunk) for chunk in self.chunks]
        return columns[0] if self._permutation is None else np.concatenate(columns)[self._permutation]

    def scattered(self, column: np.ndarray) -> list[np.ndarray]:
        """A column of all rows, in order, as one for each chunk."""
        if self._permutation is None:
            return [column]
        back = np.empty_like(column)
        back[self._permutation] = column
        return np.split(back, np.cumsum([len(chunk) for chunk in self.chunks])[:-1])
