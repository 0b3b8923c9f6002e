"""What a watched program is held against: its own bits, and what BlackJAX itself says of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from adapters.samplers import Said

from jaxtap.testing import assert_identical

# Those that take long to compile are in the session `clients`.
QUICK = ("window, diagonal", "window, dense", "window, nuts", "staged, fisher", "vmap of window", "meads", "chees")


def rows_of(seen: Any) -> list[Any]:
    """Rows by step, then chain."""
    return sorted(seen.rows, key=lambda row: (row.step, row.lane))


def assert_said(seen: Any, said: Said) -> None:
    """Every column that BlackJAX itself speaks of is what it says, to the last bits of a float."""
    rows = rows_of(seen)
    for column, values in said.by_column.items():
        expected = np.asarray(values, np.float64)
        got = np.array([row[column] for row in rows], np.float64)
        np.testing.assert_allclose(got, expected.reshape(-1), rtol=1e-5, atol=1e-6, err_msg=column)
    for column, value in said.last.items():
        # A loop that is run twice has its last step in its last execution.
        got = [row[column] for row in seen.rows if column in row.values]
        np.testing.assert_allclose(got[-1], value, rtol=1e-5)


def conforms(context: Callable[..., Any], run: Callable[[], Said]) -> Any:
    """A program watched: the same bits, and rows that say what BlackJAX says."""
    bare = run()
    with context(tripwires=False) as seen:
        said = run()
    assert_identical(said.result, bare.result)
    assert_said(seen, said)
    return seen
