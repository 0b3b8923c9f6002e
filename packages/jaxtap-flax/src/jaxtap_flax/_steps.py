"""Which step of training a module was called in, by the loops around both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtap.internal import Row


def loops_around(row: Row) -> tuple[int, ...]:
    """Steps of the loops that a row lies in, outermost first; empty outside of any."""
    return (*row.outer, row.index) if row.is_in_loop else ()


class Steps:
    """The steps of training, to be found by rows of modules.

    A module may lie in more loops than the step, such as that over layers of `nn.scan`: then it has a place in them.

    Args:
      rows: those of the steps.
      modules: those of the modules.
    """

    def __init__(self, rows: Iterable[Row], modules: Iterable[Row] = ()) -> None:
        rows = list(rows)
        self._depth = len(loops_around(rows[0])) if rows else 0
        self._total = rows[0].total if rows else None
        self._entered: dict[str, int] = {}
        for row in modules:
            order = row.values.get("order", 0)
            self._entered[row.path] = min(order, self._entered.get(row.path, order))
        self._rows = {(row.lane, row.call, loops_around(row) or (row.index,)): row for row in rows}

    def key(self, row: Row) -> Any:
        """What stands for the step that a module was called in; None where that is not told."""
        loops = loops_around(row)
        own, inside = loops[: self._depth], loops[self._depth :]
        if self._depth == 0:
            # Outside of loops, a program is a step. An inner loop's own count of executions is then that of steps.
            index = row.index if not loops else row.call if len(loops) == 1 else None
            return None if index is None else (row.lane, 0, (index,))
        if len(own) < self._depth:
            return None
        call = row.call
        if inside:
            call = (row.call - own[0]) // self._total if self._depth == len(loops) - 1 == 1 and self._total else 0
        return row.lane, call, own

    def place(self, row: Row) -> tuple[int, ...]:
        """Where a module is in the loops that are in the step, as its layer in one over layers."""
        return loops_around(row)[self._depth :]

    def of(self, row: Row) -> int:
        """The step's own count; where its row is no longer there, how many came before."""
        if "module" not in row.values:
            return row.step
        key = self.key(row)
        found = self._rows.get(key)
        return found.step if found is not None else row.step if key is None else key[2][-1]

    def when(self, row: Row) -> tuple[Any, ...]:
        """What rows are sorted by to come as they happened: the step, then modules as they were called in it."""
        order, place = row.values.get("order", 0), self.place(row) if "module" in row.values else ()
        return self.of(row), self._entered.get(row.path, order) if place else order, place, order
