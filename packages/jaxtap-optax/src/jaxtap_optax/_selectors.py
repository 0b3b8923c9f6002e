"""What optimizer states call things: selectors by name, found by the type of the state and its field."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtap.internal import Selector, norm


def _largest(leaves: list[Any]) -> Any:
    return jnp.max(jnp.stack([jnp.max(leaf) for leaf in leaves]))


def _smallest(leaves: list[Any]) -> Any:
    return jnp.min(jnp.stack([jnp.min(leaf) for leaf in leaves]))


def _of(field: str, *types: str) -> tuple[tuple[str, str], ...]:
    return tuple((each, field) for each in types)


_WITH_MU = (
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByLionState",
    "ScaleByBeliefState",
    "ScaleByNovogradState",
    "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState",
    "ScaleBySM3State",
    "MuonState",
    "SophiaState",
)
_WITH_NU = (
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByBeliefState",
    "ScaleByNovogradState",
    "ScaleByRmsState",
    "ScaleByRmsWithCountState",
    "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState",
    "ScaleByAdemamixState",
    "ScaleBySM3State",
    "SophiaState",
)
_WITH_COUNT = (
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByLionState",
    "ScaleByBeliefState",
    "ScaleByNovogradState",
    "ScaleByRmsWithCountState",
    "ScaleByRStdDevWithCountState",
    "ScaleByAdemamixState",
    "ScaleByLBFGSState",
    "MuonState",
    "SophiaState",
    "ProdigyState",
    "DAdaptAdamWState",
    "MomoState",
    "MomoAdamState",
    "FactoredState",
)
_LINE_SEARCHES = ("ScaleByZoomLinesearchState", "ScaleByBacktrackingLinesearchState")
_SEARCHING = ("ZoomLinesearchState", "BacktrackingLineSearchState")

learning_rate = Selector(
    "learning_rate",
    (
        *_of("hyperparams.learning_rate", "InjectStatefulHyperparamsState", "InjectHyperparamsState", ""),
        *_of("learning_rate", *_LINE_SEARCHES, "BacktrackingLineSearchState"),
        ("ZoomLinesearchState", "stepsize"),
    ),
)
count = Selector("count", (*_of("count", *_WITH_COUNT), *_of("count", "ScaleByScheduleState", "")))
mu_norm = Selector("mu_norm", _of("mu", *_WITH_MU, ""), norm)
nu_max = Selector("nu_max", _of("nu", *_WITH_NU, ""), _largest)
nu_min = Selector("nu_min", _of("nu", *_WITH_NU, ""), _smallest)
notfinite_count = Selector("notfinite_count", _of("notfinite_count", "ApplyIfFiniteState", ""))
total_notfinite = Selector("total_notfinite", _of("total_notfinite", "ApplyIfFiniteState", ""))
mini_step = Selector("mini_step", _of("mini_step", "MultiStepsState", ""))
gradient_step = Selector("gradient_step", _of("gradient_step", "MultiStepsState", ""))
plateau_scale = Selector("plateau_scale", _of("scale", "ReduceLROnPlateauState"))
estimated_lr = Selector("estimated_lr", _of("estim_lr", "ProdigyState", "DAdaptAdamWState", ""))
trace_norm = Selector("trace_norm", _of("trace", "TraceState", ""), norm)
ema = Selector("ema", _of("ema", "EmaState", ""), norm)
linesearch_steps = Selector(
    "linesearch_steps",
    (
        *_of("info.num_linesearch_steps", *_LINE_SEARCHES, ""),
        ("BacktrackingLineSearchState", "iter_num"),
        ("ZoomLinesearchState", "count"),
    ),
)
decrease_error = Selector(
    "decrease_error", (*_of("info.decrease_error", *_LINE_SEARCHES, ""), *_of("decrease_error", *_SEARCHING, ""))
)
failed = Selector("failed", (("ZoomLinesearchState", "failed"), ("", "failed")))

# Those of which a row has a column.
IN_STATE = (
    learning_rate,
    count,
    mu_norm,
    nu_max,
    nu_min,
    notfinite_count,
    total_notfinite,
    mini_step,
    gradient_step,
    plateau_scale,
    estimated_lr,
    trace_norm,
    ema,
    linesearch_steps,
    decrease_error,
)
