"""The recording as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from schools import diagnosis

matplotlib.use("Agg")
import matplotlib.pyplot as plt

QUIET, DIVERGENT = "#4477aa", "#cc3311"


def draw(warmup: pd.DataFrame, sampling: pd.DataFrame, path: Path) -> None:
    """Write the picture: the step size over the warm-up, and where in the space steps diverged."""
    figure = plt.figure(figsize=(11, 7.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.05))
    _step_size(top.subplots(), warmup)
    left, right = bottom.subplots(1, 2, sharey=True, width_ratios=(1.5, 1))
    _trace(left, sampling)
    _neck(right, sampling)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _step_size(axes: Any, warmup: pd.DataFrame) -> None:
    sizes, divergent = diagnosis.used(warmup), warmup["is_divergent"]
    for window in diagnosis.windows(len(warmup)):
        if window.slow:
            shade = 0.05 + 0.04 * (window.number % 2)
            axes.axvspan(window.steps.start, window.steps.stop, color="black", alpha=shade, lw=0)
    axes.semilogy(sizes, color=QUIET, lw=0.9, label="step size used")
    axes.semilogy(sizes[divergent], "v", color=DIVERGENT, ms=6, label=f"step diverged ({divergent.sum()})")
    axes.axhline(diagnosis.handed_on(warmup), color="black", lw=1, ls="--", label="handed on to the sampler")
    axes.set(xlabel="warm-up step (shaded: slow windows)", ylabel="step size", xlim=(0, len(warmup)))
    axes.set_title(f"Warm-up: step sizes from {sizes.min():.3g} to {sizes.max():.3g}", loc="left")
    axes.legend(loc="upper center", ncols=3, fontsize="small", framealpha=0.9)
    axes.set_ylim(top=sizes.max() * 3)


def _trace(axes: Any, sampling: pd.DataFrame) -> None:
    divergent = sampling["is_divergent"]
    axes.plot(sampling["log_tau"], color=QUIET, lw=0.7)
    axes.plot(sampling["log_tau"][divergent], ".", color=DIVERGENT, ms=7)
    axes.set(xlabel="draw", ylabel="log tau", xlim=(0, len(sampling)))
    axes.set_title(f"Sampling: {divergent.sum()} of {len(sampling)} draws diverged", loc="left")


def _neck(axes: Any, sampling: pd.DataFrame) -> None:
    divergent, first = sampling["is_divergent"], sampling["theta"].map(lambda theta: theta[0])
    axes.plot(first[~divergent], sampling["log_tau"][~divergent], ".", color=QUIET, ms=4, alpha=0.5, mew=0)
    axes.plot(first[divergent], sampling["log_tau"][divergent], ".", color=DIVERGENT, ms=7)
    axes.set(xlabel="theta of school A")
    in_neck = (divergent & diagnosis.low_tau(sampling)).sum()
    axes.set_title(f"{in_neck} of the {divergent.sum()} at small tau (lowest quarter)", loc="left")
