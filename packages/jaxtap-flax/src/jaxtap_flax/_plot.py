"""A figure of a training run. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from jaxtap.internal import Row, Trip
from jaxtap_flax._tripwires import layers

_LINES = ("grad_norm", "param_norm", "update_norm")


def figure(rows: Sequence[Row], trips: Sequence[Trip] = ()) -> Any:
    """A matplotlib figure, 800 by 900 pixels: loss; norms, of all and by layer; gradient norm by step and layer.

    Args:
      rows: rows of steps.
      trips: tripwires that have fired: the first is marked.

    Raises:
      ImportError: without matplotlib.
      ValueError: without rows.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install 'jaxtap-flax[plot]'.") from error
    if not rows:
        raise ValueError("plot() has nothing to show: no step was seen.")
    drawn = Figure(figsize=(8, 9), dpi=100, layout="constrained")
    loss, norms, heat = drawn.subplots(3, 1, height_ratios=(1, 1.4, 1.4))
    steps = [row.step for row in rows]
    _loss(loss, steps, rows)
    _norms(norms, steps, rows)
    _heat(drawn, heat, steps, rows)
    if trips:
        _first(loss, norms, min(trips, key=lambda trip: trip.row.step))
    return drawn


def _loss(axes: Any, steps: Sequence[int], rows: Sequence[Row]) -> None:
    axes.plot(steps, [row["loss"] for row in rows], color="black", linewidth=1)
    axes.set(ylabel="loss", xlim=_limits(steps))
    if all(row["loss"] > 0 for row in rows):
        axes.set_yscale("log")


def _norms(axes: Any, steps: Sequence[int], rows: Sequence[Row]) -> None:
    for name in _LINES:
        axes.plot(steps, [row[name] for row in rows], label=name, linewidth=1.5)
    for i, layer in enumerate(layers(rows[0], "grad_norm")):
        label = "gradient by layer" if i == 0 else None
        each = [row[f"grad_norm/{layer}"] for row in rows]
        axes.plot(steps, each, color="tab:blue", alpha=0.25, linewidth=0.8, label=label)
    axes.set(ylabel="norm", yscale="log", xlim=_limits(steps))
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, fontsize=8, ncols=4, frameon=False)


def _heat(drawn: Any, axes: Any, steps: Sequence[int], rows: Sequence[Row]) -> None:
    from matplotlib import colormaps  # noqa: PLC0415 - an extra

    names = list(layers(rows[0], "grad_norm"))
    if not names:
        axes.set_axis_off()
        return
    shown = [[_log(row[f"grad_norm/{name}"]) for row in rows] for name in names]
    left, right = _limits(steps)
    extent = (left, right, len(names) - 0.5, -0.5)
    colours = colormaps["viridis"].with_extremes(bad="red")
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", extent=extent, cmap=colours)
    axes.set(xlabel="step", yticks=range(len(names)), yticklabels=names)
    axes.tick_params(axis="y", labelsize=8)
    drawn.colorbar(image, ax=axes, label="log10 of gradient norm")


def _log(value: float) -> float:
    """For colour; what is not finite has none, and is shown in red."""
    return math.log10(max(value, 1e-30)) if math.isfinite(value) else math.nan


def _limits(steps: Sequence[int]) -> tuple[float, float]:
    return min(steps) - 0.5, max(steps) + 0.5


def _first(loss: Any, norms: Any, trip: Trip) -> None:
    for axes in (loss, norms):
        axes.axvline(trip.row.step, color="red", linewidth=1, linestyle="--")
    text = textwrap.fill(f"step {trip.row.step}: {trip.message}", 100)
    loss.set_title(text, fontsize=9, color="red", loc="left")
