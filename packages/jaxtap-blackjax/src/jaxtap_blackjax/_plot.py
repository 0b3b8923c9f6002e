"""A run in one figure, by chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtap.internal import Row, check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Chains = dict[tuple[int, ...], list[Row]]


def plot(seen: Any, target: float = 0.8, window: int = 25) -> Figure:
    """Draw what a context has seen.

    Args:
      seen: the context.
      target: the acceptance rate aimed at.
      window: steps that the acceptance rate is averaged over.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install 'jaxtap-blackjax[plot]'.") from error
    check_count("window", window, 1, "steps")
    chains: Chains = {}
    for row in seen.rows:
        chains.setdefault(row.lane, []).append(row)
    panels = [each for each in _panels(target, window) if _has(chains, each[1])]
    if not panels:
        raise ValueError(f"there is nothing to plot: {seen.name} has seen nothing.")
    figure = Figure(figsize=(8, 2.4 * -(-len(panels) // 2) + 0.5), dpi=100, layout="constrained")
    axes: Any = figure.subplots(-(-len(panels) // 2), 2 if len(panels) > 1 else 1, squeeze=False).ravel()
    for axis, (title, column, draw) in zip(axes, panels, strict=False):
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
        draw(axis, chains, column)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if 1 < len(chains) <= 10:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, title="chain", title_fontsize=8)
    figure.suptitle(f"{seen.name}: {len(chains)} chain(s), {len(seen.trips)} tripwire(s) fired", fontsize=11)
    return figure


def _has(chains: Chains, column: str) -> bool:
    return any(column in row.values for rows in chains.values() for row in rows)


def _regular(chains: Chains) -> Chains:
    """The rows that shares and means are of: those that are sent whatever happens in them."""
    return {lane: [row for row in rows if not row.between] for lane, rows in chains.items()}


def _panels(target: float, window: int) -> list[tuple[str, str, Callable[..., None]]]:
    def acceptance(axis: Axes, chains: Chains, column: str) -> None:
        _lines(axis, _regular(chains), column, lambda values: _rolling(values, window))
        axis.axhline(target, color="black", linestyle="--", linewidth=1)
        axis.set_ylim(0, 1.05)

    def logarithmic(axis: Axes, chains: Chains, column: str) -> None:
        _lines(axis, chains, column)
        axis.set_yscale("log")

    def counted(axis: Axes, chains: Chains, column: str) -> None:
        _lines(axis, chains, column, lambda values: np.cumsum(values.astype(float)))

    return [
        ("step size", "step_size", logarithmic),
        (f"acceptance rate, mean of {window} steps (target {target:g})", "acceptance_rate", acceptance),
        ("transitions by tree depth", "tree_depth", _depths),
        ("condition number of the mass matrix", "mass_matrix_condition", logarithmic),
        ("divergences so far", "is_divergent", counted),
        ("logdensity", "logdensity", _lines),
        ("tempering parameter", "tempering_parameter", _lines),
        ("effective sample size", "ess", _lines),
        ("ELBO", "elbo", _lines),
        ("log evidence", "logz", _lines),
        ("log evidence left in the live points", "remaining", _lines),
    ]


def _series(rows: Sequence[Row], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Step of each row, and its value. A run of several loops is one line, by the position of rows in it."""
    is_one = len({row.series for row in rows}) == 1
    found = [(row.step if is_one else i, row.values[column]) for i, row in enumerate(rows) if column in row.values]
    return np.array([i for i, _ in found]), np.array([float(value) for _, value in found])


def _lines(
    axis: Axes, chains: Chains, column: str, shown: Callable[[np.ndarray], np.ndarray] = lambda values: values
) -> None:
    for lane, rows in chains.items():
        steps, values = _series(rows, column)
        if len(steps):
            axis.plot(steps, shown(values), linewidth=1, label=",".join(map(str, lane)), alpha=0.8)
    axis.set_xlabel("step", fontsize=8)


def _depths(axis: Axes, chains: Chains, column: str) -> None:
    values = {lane: _series(rows, column)[1] for lane, rows in _regular(chains).items()}
    deepest = int(max(own.max() for own in values.values() if len(own)))
    bins = np.arange(-0.5, deepest + 1.5)
    axis.hist(list(values.values()), bins=list(bins), stacked=True)
    axis.set_xticks(range(deepest + 1))
    axis.set_xlabel("depth", fontsize=8)


def _rolling(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` values at each place, of fewer where there are fewer."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
