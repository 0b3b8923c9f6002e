"""Rows as ArviZ's sample statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtap.internal import Row

# ArviZ's name of each statistic, as its data schema has it.
_NAMES = {
    "is_divergent": "diverging",
    "tree_depth": "tree_depth",
    "step_size": "step_size",
    "step_size_avg": "step_size_bar",
    "energy": "energy",
    "logdensity": "lp",
    "acceptance_rate": "acceptance_rate",
    "num_integration_steps": "n_steps",
}


def to_arviz(name: str, rows: Sequence[Row]) -> Any:
    """Rows as ArviZ's own container: a `DataTree` in ArviZ 1, an `InferenceData` before.

    Args:
      name: of the context; a warmup's rows go into a group of their own.
      rows: the rows.
    """
    try:
        import arviz as az  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("to_arviz() needs arviz: pip install 'jaxtap-blackjax[arviz]'.") from error
    arviz: Any = az
    statistics = statistics_of(rows)
    group = "warmup_sample_stats" if name == "watch_warmup" else "sample_stats"
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({group: statistics}, save_warmup=True)
    return arviz.from_dict(**{group: statistics}, save_warmup=True)


def statistics_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Statistics of shape `(chain, draw)`, by ArviZ's names.

    Raises:
      ValueError: if there are no rows.
    """
    by_lane: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        # Draws are evenly apart.
        if not row.between:
            by_lane.setdefault(row.lane, []).append(row)
    if not by_lane:
        raise ValueError("there is nothing to hand to ArviZ: nothing was seen.")
    # A chain whose last rows are under way, or were dropped, is as short as the shortest.
    draws = min(map(len, by_lane.values()))
    chains = [own[-draws:] for _, own in sorted(by_lane.items())]
    present = [column for column in _NAMES if any(column in row.values for own in chains for row in own)]
    return {_NAMES[column]: _array(column, chains) for column in present}


def _array(column: str, chains: Sequence[Sequence[Row]]) -> np.ndarray:
    values = [[row.values.get(column) for row in own] for own in chains]
    complete = all(value is not None for own in values for value in own)
    if complete:
        return np.array(values)
    return np.array([[np.nan if value is None else float(value) for value in own] for own in values])
