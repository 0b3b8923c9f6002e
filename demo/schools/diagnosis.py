"""What the recording says about the run, in words. Every number is computed from recorded events."""

from __future__ import annotations

import dataclasses
import itertools
import re
import textwrap

import blackjax
import numpy as np
import pandas as pd
from blackjax.adaptation.window_adaptation import build_schedule

import jaxtap as tap

# What `blackjax.window_adaptation` aims at by default (target_acceptance_rate), as Stan does (adapt_delta).
TARGET_ACCEPTANCE = 0.8
# The default of `blackjax.diagnostics.divergence_concentration`: a chain with this share of divergent draws is flagged.
RATE_THRESHOLD = 0.02


def short(name: str) -> str:
    """The last part of a leaf's name: `"carry[0].position['log_tau']"` is `"log_tau"`."""
    return re.findall(r"\w+", name)[-1]


def by_step(rec: tap.FlightRecorder, path: str) -> pd.DataFrame:
    """One row for each step of a loop: the selected leaves of its state after the step, and of what it returned."""
    frame = rec.df(path=path).groupby("step").first()
    leaves = frame.drop(columns=["path", "kind", "total", "lane", "outer", "call", "time"])
    return leaves.rename(columns=short).astype({"is_divergent": bool})


# --- Measures ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Window:
    """One window of the warm-up: only slow ones adapt the mass matrix."""

    number: int
    slow: bool
    steps: range


def windows(num_warmup: int) -> list[Window]:
    """The windows in which `blackjax.window_adaptation` adapts, by its own schedule."""
    slow, ends = np.asarray(build_schedule(num_warmup)).T
    starts = [0, *(i for i in range(1, num_warmup) if slow[i] != slow[i - 1] or ends[i - 1]), num_warmup]
    return [Window(i + 1, bool(slow[a]), range(a, b)) for i, (a, b) in enumerate(itertools.pairwise(starts))]


def used(warmup: pd.DataFrame) -> pd.Series:
    """The step size with which each step was made: the one adapted in the step before. The first is not recorded."""
    return warmup["step_size"].shift()


def handed_on(warmup: pd.DataFrame) -> float:
    """The step size that the sampler gets: the average that dual averaging has kept over the last window."""
    return float(np.exp(warmup["log_step_size_avg"].iloc[-1]))


def low_tau(steps: pd.DataFrame) -> pd.Series:
    """Which steps ended in the quarter with the smallest tau."""
    return steps["log_tau"] <= steps["log_tau"].quantile(0.25)


def standstill(steps: pd.DataFrame) -> tuple[int, int]:
    """The longest run of steps in which the chain did not move: how many, and the first of them."""
    moved = steps["log_tau"].diff() != 0
    lengths = (~moved).groupby(moved.cumsum()).sum()
    return int(lengths.max()), int(steps.index[moved.cumsum() == lengths.idxmax()][0]) + 1


# --- Words ---------------------------------------------------------------------------------------------------


def text(warmup: pd.DataFrame, sampling: pd.DataFrame) -> str:
    """The findings."""
    findings = {
        "When": _when(warmup),
        "Step size": _step_size(warmup),
        "Divergences in the warm-up": _warmup(warmup),
        "Divergences in sampling": _sampling(sampling),
        "Standing still": _standing_still(sampling),
        "Verdict": _verdict(sampling),
    }
    wrap = textwrap.TextWrapper(98, initial_indent="* ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([table(warmup), *(wrap.fill(f"{title}: {found}") for title, found in findings.items())])


def table(warmup: pd.DataFrame) -> str:
    """The warm-up by window."""
    lines = [
        "The warm-up by BlackJAX's windows; smallest and largest are of the step size used",
        "  window  kind         steps            divergent   smallest    largest   at step   acceptance",
    ]
    for window in windows(len(warmup)):
        steps, sizes = warmup.loc[window.steps], used(warmup).loc[window.steps]
        lines.append(
            f"{window.number:8}  {'slow' if window.slow else 'fast'}  {f'{window.steps[0]}..{window.steps[-1]}':>12}"
            f"{_share(steps['is_divergent'].sum(), len(steps)):>21} {sizes.min():10.4f} {sizes.max():10.4f} "
            f"{sizes.idxmax():9d} {steps['acceptance_rate'].mean():12.2f}"
        )
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "0 of 0"


def _after_first_window(warmup: pd.DataFrame) -> pd.DataFrame:
    return warmup.drop(index=list(windows(len(warmup))[0].steps))


def _when(warmup: pd.DataFrame) -> str:
    divergent = warmup["is_divergent"]
    first, *_ = windows(len(warmup))
    last = [window for window in windows(len(warmup)) if window.slow][-1]
    return (
        f"{divergent.sum()} steps of the warm-up diverged. The {divergent[first.steps].sum()} in window 1 belong to "
        f"the search for a step size. {_after_first_window(warmup)['is_divergent'].sum()} came later, "
        f"{divergent[last.steps].sum()} of them in the last slow window."
    )


def _step_size(warmup: pd.DataFrame) -> str:
    after = _after_first_window(warmup)
    sizes, neck = used(warmup).loc[after.index], low_tau(after)
    in_neck, elsewhere = (np.exp(np.log(sizes[rows]).mean()) for rows in (neck, ~neck))
    return (
        f"after window 1 it went from {sizes.min():.4f} (at step {sizes.idxmin()}) to {sizes.max():.3g} (at step "
        f"{sizes.idxmax()}), a factor of {sizes.max() / sizes.min():.0f}. In the quarter of the steps with the "
        f"smallest tau it was {in_neck:.3f} in the geometric mean, elsewhere {elsewhere:.3f}. The sampler gets "
        f"{handed_on(warmup):.4f}, the average over the last window."
    )


def _warmup(warmup: pd.DataFrame) -> str:
    after = _after_first_window(warmup)
    divergent, sizes = after["is_divergent"], used(warmup).loc[after.index]
    if not divergent.any():
        return "none after window 1."
    pairs = itertools.pairwise(windows(len(warmup)))
    starts = [step for before, window in pairs if before.slow for step in window.steps[:3]]
    in_neck = (divergent & low_tau(after)).sum()
    return (
        f"after window 1, they were made with a step size of {sizes[divergent].median():.2f} in the median, the other "
        f"steps with {sizes[~divergent].median():.2f}. {_share(divergent[starts].sum(), divergent.sum())} were among "
        "the first three steps after a slow window, where BlackJAX begins its search anew and aims at ten times the "
        f"last step size. {_share(in_neck, divergent.sum())} ended in the quarter with the smallest tau."
    )


def _sampling(sampling: pd.DataFrame) -> str:
    divergent, log_tau = sampling["is_divergent"], sampling["log_tau"]
    if not divergent.any():
        return f"none in {len(sampling)} draws."
    in_neck = (divergent & low_tau(sampling)).sum()
    return (
        f"{_share(divergent.sum(), len(sampling))} draws diverged. {_share(in_neck, divergent.sum())} of them are in "
        f"the quarter with the smallest tau. Median log tau: {log_tau[divergent].median():.2f} at the divergent draws, "
        f"{log_tau[~divergent].median():.2f} at the others."
    )


def _standing_still(sampling: pd.DataFrame) -> str:
    count, begin = standstill(sampling)
    if count:
        where = f"from draw {begin} on, at log tau = {sampling['log_tau'][begin]:.2f}"
        found = f"at the longest {count} draws in a row, {where}"
    else:
        found = "never; the chain moved at every draw"
    acceptance = sampling["acceptance_rate"].mean()
    return f"{found}. Mean acceptance {acceptance:.2f}; the warm-up aimed at {TARGET_ACCEPTANCE}."


def _verdict(sampling: pd.DataFrame) -> str:
    """What users of BlackJAX and of Stan would conclude."""
    divergent = sampling["is_divergent"]
    check = blackjax.diagnostics.divergence_concentration(divergent.to_numpy()[None], rate_threshold=RATE_THRESHOLD)
    blackjax_says = "flags this chain" if check.flagged[0] else "does not flag this chain"
    stan_says = "would warn, as it does for any divergence after warm-up" if divergent.any() else "would not warn"
    found = (
        f"blackjax.diagnostics.divergence_concentration {blackjax_says} (rate {check.rates[0]:.3f}, its threshold "
        f"{RATE_THRESHOLD}). Stan {stan_says} (mc-stan.org/misc/warnings)."
    )
    if divergent.any() and (divergent & low_tau(sampling)).sum() > 2 / 3 * divergent.sum():
        found += (
            " More than two thirds of the divergences lie at small tau, in the neck of the funnel that "
            "theta ~ N(mu, tau) makes. One step size cannot serve both the neck and the rest, and what the draws say "
            "of small tau is not to be trusted. The usual remedy is the non-centred form, theta = mu + tau * z "
            "(Betancourt and Girolami 2015)."
        )
    return found
