"""The hooks on BlackJAX: for the time of a watch, what a kernel builds its info and its state with marks them.

Kernels look these constructors up in their module each time they are traced. So a sampler that was made before the
watch is seen, one that drops its info, too, and nothing of the sampler itself is touched.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxtap.internal import Guard, Patch, hook_settings, mark_for
from jaxtap_blackjax._columns import TUNING

HOOK = "jaxtap_blackjax"

_guard = Guard()


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a watch wants to be marked.

    Attributes:
      kind: of which part of BlackJAX: `"mcmc"`, `"smc"`, `"vi"`, `"nested"`, `"pathfinder"`.
      extra: names of more fields of the info or the state, at the end of a dotted name.
    """

    kind: str
    extra: tuple[str, ...] = ()


class _Step(threading.local):
    """What the step of a kernel that is being traced in this thread has built so far."""

    info: Any = None
    state: Any = None
    depth_limit: Any = None
    tunes: bool = False


_step = _Step()


def wanted(kind: str) -> bool:
    """Whether a watch that sees this thread looks at a part of BlackJAX."""
    return any(each.kind == kind for each in hook_settings(HOOK))


def mark(kind: str, name: str, value: Any) -> None:
    """Mark a value for the watches that look at a part of BlackJAX. What cannot be marked is said once, not raised."""
    _guard.call("marking a step", _bind, kind, name, value)


def _bind(kind: str, name: str, value: Any) -> None:
    arrays = jax.tree.map(jax.numpy.asarray, value)
    mark_for(HOOK, name, arrays, outside=("blackjax",), where=lambda how: how.kind == kind)


def _mark_step(info: Any, state: Any) -> None:
    """Mark one step of a chain: the fields of its info that are needed, and the state it leads to."""
    extra = [name for each in hook_settings(HOOK) if each.kind == "mcmc" for name in each.extra]
    value = {
        "info": {name: getattr(info, name) for name in info._fields if _is_needed(name, getattr(info, name), extra)},
        "state": {
            name: getattr(state, name)
            for name in ("position", "logdensity", "logdensity_grad")
            if state is not None and hasattr(state, name)
        },
    }
    if _step.depth_limit is not None and "num_trajectory_expansions" in value["info"]:
        value["info"]["tree_depth_limit"] = _step.depth_limit
    mark("mcmc", f"{type(info).__name__}{TUNING if _step.tunes else ''}", value)


def _is_needed(name: str, value: Any, extra: list[str]) -> bool:
    scalar = len(jax.tree.leaves(value)) == 1 and jax.tree.structure(value).num_nodes == 1
    return (scalar and (jax.numpy.ndim(value) == 0 or name in extra)) or any(e.split(".")[0] == name for e in extra)


# --- What stands in place of BlackJAX's own ------------------------------------------------------------------


def then(found: Any, do: Callable[[Any], object]) -> Any:
    """A constructor that also hands what it has built to a function."""

    @functools.wraps(found, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        built = found(*args, **kwargs)
        do(built)
        return built

    return build


def _info_first(found: Any) -> Any:
    """In place of an info's constructor, where the step's state is built after it."""

    def note(info: Any) -> None:
        _step.info = info if wanted("mcmc") else None

    return then(found, note)


def _state_last(found: Any) -> Any:
    """In place of a state's constructor, where the step's info is built before it."""

    def finish(state: Any) -> None:
        info, _step.info = _step.info, None
        if info is not None and wanted("mcmc"):
            _mark_step(info, state)

    return then(found, finish)


def _state_first(found: Any) -> Any:
    """In place of a state's constructor, where the step's info is built after it."""
    return then(found, _note_state)


def _accepted_first(found: Any) -> Any:
    """In place of what accepts or rejects a proposal: it returns the step's state first."""
    return then(found, lambda result: _note_state(result[0]))


def _note_state(state: Any) -> None:
    _step.state = state if wanted("mcmc") else None


def _info_last(found: Any) -> Any:
    """In place of an info's constructor, where the step's state is known by then, or never."""

    def finish(info: Any) -> None:
        state, _step.state = _step.state, None
        if wanted("mcmc"):
            _mark_step(info, state)

    return then(found, finish)


def _info_holds_state(found: Any) -> Any:
    """In place of `RWInfo`, whose `proposal` is the state that the step leads to."""
    return then(found, lambda info: _mark_step(info, info.proposal) if wanted("mcmc") else None)


def _both_returned(found: Any) -> Any:
    """In place of the last function that a kernel calls: it returns state and info."""
    return then(found, lambda both: _mark_step(both[1], both[0]) if wanted("mcmc") else None)


def _limit(found: Any) -> Any:
    """In place of what builds NUTS's expansion: it is told how deep a tree may grow."""

    @functools.wraps(found)
    def build(trajectory_integrator: Any, uturn_check_fn: Any, max_num_expansions: Any = 10, *rest: Any) -> Any:
        _step.depth_limit = max_num_expansions
        return found(trajectory_integrator, uturn_check_fn, max_num_expansions, *rest)

    return build


def _tuning(found: Any) -> Any:
    """In place of what builds MCLMC's last tuning stage, whose loop has no adaptation in its state."""

    @functools.wraps(found)
    def build(*args: Any, **kwargs: Any) -> Any:
        tune = found(*args, **kwargs)

        @functools.wraps(tune)
        def run(*args: Any, **kwargs: Any) -> Any:
            before, _step.tunes = _step.tunes, True
            try:
                return tune(*args, **kwargs)
            finally:
                _step.tunes = before

        return run

    return build


# --- Where they stand ----------------------------------------------------------------------------------------

Table = tuple[tuple[str, str, Callable[[Any], Any]], ...]

_MCMC: Table = (
    ("mcmc.trajectory", "dynamic_multiplicative_expansion", _limit),
    ("mcmc.nuts", "NUTSInfo", _info_first),
    ("mcmc.hmc", "HMCInfo", _info_first),
    ("mcmc.hmc", "HMCState", _state_last),
    ("mcmc.ghmc", "GHMCState", _state_last),
    ("mcmc.adjusted_mclmc", "HMCInfo", _info_first),
    ("mcmc.adjusted_mclmc", "HMCState", _state_last),
    ("mcmc.adjusted_mclmc_dynamic", "DynamicHMCState", _state_last),
    ("mcmc.mclmc", "handle_nans", _both_returned),
    ("mcmc.barker", "static_binomial_sampling", _accepted_first),
    ("mcmc.barker", "BarkerInfo", _info_last),
    ("mcmc.mala", "MALAInfo", _info_last),
    ("mcmc.random_walk", "RWInfo", _info_holds_state),
    ("mcmc.elliptical_slice", "EllipSliceState", _state_first),
    ("mcmc.elliptical_slice", "EllipSliceInfo", _info_last),
    ("mcmc.slice", "SliceInfo", _info_last),
    ("adaptation.mclmc_adaptation", "make_adaptation_L", _tuning),
    ("adaptation.adjusted_mclmc_adaptation", "adjusted_mclmc_make_adaptation_L", _tuning),
)

# Up to BlackJAX 1.3, MCLMC's kernel has nothing that it calls last.
_MCLMC_OF_OLD: Table = (("mcmc.mclmc", "IntegratorState", _state_first), ("mcmc.mclmc", "MCLMCInfo", _info_last))


def patches_for(table: Table) -> list[Patch]:
    """The patches of a table of modules, names and what stands in their place; those a release lacks are left out."""
    found: list[Patch] = []
    for module_name, name, around in table:
        try:
            module = importlib.import_module(f"blackjax.{module_name}")
        except ImportError:
            continue
        if hasattr(module, name):
            found.append(Patch(module, name, around))
    return found


def mcmc_patches() -> list[Patch]:
    """What is replaced while a watch looks at chains."""
    found = patches_for(_MCMC)
    is_new = any(patch.name == "handle_nans" for patch in found)
    return found if is_new else found + patches_for(_MCLMC_OF_OLD)
