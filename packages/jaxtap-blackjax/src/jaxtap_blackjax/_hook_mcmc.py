"""The hooks on MCMC kernels: what a step builds its info and its state with marks the two."""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any

import jax

from jaxtap.internal import Patch, hook_settings
from jaxtap_blackjax._columns import TUNING
from jaxtap_blackjax._hook import HOOK, Pair, Table, mark, patches_for, then, wanted


class _Step(threading.local):
    """What is known of the kernel that is being traced in this thread."""

    depth_limit: Any = None
    tunes: bool = False


_step = _Step()


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


def _state_and_info(state: Any, info: Any) -> None:
    _mark_step(info, state)


def _first(built: Any) -> Any:
    return built[0]


# Each kernel has one of its own: what one has begun, no other ends.
_HMC = Pair("mcmc", _mark_step)
_ELLIPTICAL = Pair("mcmc", _state_and_info)
_MCLMC = Pair("mcmc", _state_and_info)
# What accepts or rejects a proposal returns the step's state first.
_BARKER = Pair("mcmc", _state_and_info, _first)
_MARGINAL = Pair("mcmc", _state_and_info, _first)


def _accepted(both: tuple[Any, Any], info: Any) -> None:
    """MALA tells whether it has accepted; the state follows from that and from those before and after its proposal."""
    _mark_step(info, jax.tree.map(lambda old, new: jax.numpy.where(info.is_accepted, new, old), *both))


_MALA = Pair("mcmc", _accepted)


def _langevin(found: Any) -> Any:
    """In place of what builds MALA's proposal: it is told the state before, and returns the one after."""

    @functools.wraps(found)
    def build(*args: Any, **kwargs: Any) -> Any:
        one_step = found(*args, **kwargs)

        @functools.wraps(one_step)
        def run(key: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            proposed = one_step(key, state, *args, **kwargs)
            _MALA.note((type(proposed)(*state), proposed))
            return proposed

        return run

    return build


def _info_alone(found: Any) -> Any:
    """In place of an info's constructor, where the step's state is not known."""
    return then(found, lambda info: _mark_step(info, None) if wanted("mcmc") else None)


def _info_holds_state(found: Any) -> Any:
    """In place of `RWInfo`, whose `proposal` is the state that the step leads to."""
    return then(found, lambda info: _mark_step(info, info.proposal) if wanted("mcmc") else None)


def _both_returned(found: Any) -> Any:
    """In place of the last function that a kernel calls: it returns state and info."""
    return then(found, lambda both: _mark_step(both[1], both[0]) if wanted("mcmc") else None)


_SWEEP = Pair("mcmc", _mark_step)


def _slice(found: Any) -> Any:
    """In place of a slice along one line. A kernel that sweeps over coordinates makes one in each turn of its loop:
    there the sweep is the step, whose info and state it builds itself.
    """

    @functools.wraps(found)
    def run(*args: Any, **kwargs: Any) -> Any:
        both = found(*args, **kwargs)
        _SWEEP.note(None)
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if wanted("mcmc") and caller is not None and caller.f_code.co_name == "kernel":
            _mark_step(both[1], both[0])
        return both

    return run


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

_MCMC: Table = (
    ("mcmc.trajectory", "dynamic_multiplicative_expansion", _limit),
    ("mcmc.nuts", "NUTSInfo", _HMC.first),
    ("mcmc.hmc", "HMCInfo", _HMC.first),
    ("mcmc.hmc", "HMCState", _HMC.last),
    ("mcmc.ghmc", "GHMCState", _HMC.last),
    ("mcmc.adjusted_mclmc", "HMCInfo", _HMC.first),
    ("mcmc.adjusted_mclmc", "HMCState", _HMC.last),
    ("mcmc.adjusted_mclmc_dynamic", "DynamicHMCState", _HMC.last),
    ("mcmc.mclmc", "handle_nans", _both_returned),
    ("mcmc.barker", "static_binomial_sampling", _BARKER.first),
    ("mcmc.barker", "BarkerInfo", _BARKER.last),
    ("mcmc.diffusions", "overdamped_langevin", _langevin),
    ("mcmc.mala", "MALAInfo", _MALA.last),
    ("mcmc.marginal_latent_gaussian", "static_binomial_sampling", _MARGINAL.first),
    ("mcmc.marginal_latent_gaussian", "MarginalInfo", _MARGINAL.last),
    ("mcmc.random_walk", "RWInfo", _info_holds_state),
    ("mcmc.elliptical_slice", "EllipSliceState", _ELLIPTICAL.first),
    ("mcmc.elliptical_slice", "EllipSliceInfo", _ELLIPTICAL.last),
    ("mcmc.slice", "_univariate_slice", _slice),
    ("mcmc.slice", "SliceInfo", _SWEEP.first),
    ("mcmc.slice", "SliceState", _SWEEP.last),
    ("mcmc.periodic_orbital", "PeriodicOrbitalInfo", _info_alone),
    ("mcmc.composed._seam", "GISTInfo", _info_alone),
    ("adaptation.mclmc_adaptation", "make_adaptation_L", _tuning),
    ("adaptation.adjusted_mclmc_adaptation", "adjusted_mclmc_make_adaptation_L", _tuning),
)

# Up to BlackJAX 1.3, MCLMC's kernel has nothing that it calls last.
_MCLMC_OF_OLD: Table = (("mcmc.mclmc", "IntegratorState", _MCLMC.first), ("mcmc.mclmc", "MCLMCInfo", _MCLMC.last))


def mcmc_patches() -> list[Patch]:
    """What is replaced while a watch looks at chains."""
    found = patches_for(_MCMC)
    is_new = any(patch.name == "handle_nans" for patch in found)
    return found if is_new else found + patches_for(_MCLMC_OF_OLD)
