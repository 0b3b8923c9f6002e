"""The hooks on what is not a chain: NUTS's doublings, SMC, variational inference, nested sampling, Pathfinder."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap.internal import Patch
from jaxtap_blackjax._hook import Pair, Table, mark, patches_for, then, wanted


class _Built(threading.local):
    """What is being traced in this thread has built so far."""

    doubling: Any = None


_built = _Built()


# --- Doublings of a tree -------------------------------------------------------------------------------------


def _integrating(found: Any) -> Any:
    """In place of what builds the integrator of half a tree: the integrator notes what it has found."""

    @functools.wraps(found)
    def build(*args: Any, **kwargs: Any) -> Any:
        integrate = found(*args, **kwargs)

        @functools.wraps(integrate)
        def hooked(
            key: Any, start: Any, direction: Any, state: Any, steps: Any, step_size: Any, energy: Any, *rest: Any
        ) -> Any:
            result = integrate(key, start, direction, state, steps, step_size, energy, *rest)
            if wanted("trajectory"):
                proposal, half, _, is_divergent, is_turning = result
                _built.doubling = {
                    "depth": jnp.int32(jnp.round(jnp.log2(steps))) + 1,
                    "direction": direction,
                    "energy": proposal.energy,
                    "initial_energy": energy,
                    "num_states": half.num_states,
                    "is_divergent": is_divergent,
                    "subtree_is_turning": is_turning,
                }
            return result

        return hooked

    return build


def _expanding(found: Any) -> Any:
    """In place of what builds NUTS's expansion: its last check, of the whole tree, ends a doubling."""

    @functools.wraps(found)
    def build(integrator: Any, uturn_check_fn: Any, *rest: Any, **kwargs: Any) -> Any:
        @functools.wraps(uturn_check_fn)
        def check(*args: Any) -> Any:
            is_turning = uturn_check_fn(*args)
            doubling, _built.doubling = _built.doubling, None
            if doubling is not None and wanted("trajectory"):
                mark("trajectory", "doubling", doubling | {"is_turning": is_turning | doubling["subtree_is_turning"]})
            return is_turning

        return found(integrator, check, *rest, **kwargs)

    return build


# --- Sequential Monte Carlo ----------------------------------------------------------------------------------


def _tempered(info: Any, state: Any) -> None:
    """`SMCInfo` is built before the state that knows how far tempering, or the data, is."""
    value = {"weights": state.weights, "update": _scalars(info.update_info)}
    value |= {"log_evidence_increment": info.log_likelihood_increment}
    present = [name for name in ("tempering_param", "lmbda", "data_mask") if hasattr(state, name)]
    mark("smc", type(state).__name__, value | {name: getattr(state, name) for name in present})


def _persistent(state: Any, info: Any) -> None:
    """`PersistentSMCState`, which has all iterations' particles and evidences, is built before its info."""
    at = state.iteration
    value = {
        "weights": state.persistent_weights,
        "iteration": at,
        "tempering_param": state.tempering_schedule[at],
        "log_evidence": state.persistent_log_Z[at],
        "update": _scalars(info.update_info),
    }
    mark("smc", type(state).__name__, value)


_TEMPERED = Pair("smc", _tempered)
_PERSISTENT = Pair("smc", _persistent)


def _scalars(info: Any) -> dict[str, Any]:
    """The fields of the inner kernels' info that hold one number a particle and step."""
    names = ("acceptance_rate", "is_accepted", "is_divergent", "num_integration_steps")
    return {name: getattr(info, name) for name in names if hasattr(info, name)}


# --- Variational inference -----------------------------------------------------------------------------------


def _elbo_step(found: Any) -> Any:
    """In place of the optimisation step that BlackJAX's Gaussian families share."""

    @functools.wraps(found)
    def run(key: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        new, opt_state, elbo = found(key, parameters, *args, **kwargs)
        if wanted("vi"):
            mark("vi", "vi", {"elbo": elbo, "step": jax.tree.map(jnp.subtract, new, parameters), "parameters": new})
        return new, opt_state, elbo

    return run


# --- Nested sampling -----------------------------------------------------------------------------------------


def _integrated(info: Any, state: Any) -> None:
    """`NSInfo` is built before the state that has integrated it, and holds the evidence so far."""
    inner = getattr(info, "update_info", None)
    value = {
        "logz": state.integrator.logZ,
        "logz_live": state.integrator.logZ_live,
        "logx": state.integrator.logX,
        "live": state.particles.loglikelihood,
        "inner": {name: getattr(inner, name) for name in ("num_shrink", "is_accepted") if hasattr(inner, name)},
    }
    mark("nested", type(state).__name__, value)


_NESTED = Pair("nested", _integrated)


# --- Pathfinder ----------------------------------------------------------------------------------------------


def _path(found: Any) -> Any:
    """In place of `PathfinderState`, which first is of all points of the path."""

    def finish(state: Any) -> None:
        if wanted("pathfinder") and jnp.ndim(state.elbo) == 1:
            mark("pathfinder", "path", {"elbo": state.elbo})

    return then(found, finish)


_TABLES: dict[str, Table] = {
    "trajectory": (
        ("mcmc.trajectory", "dynamic_progressive_integration", _integrating),
        ("mcmc.trajectory", "dynamic_multiplicative_expansion", _expanding),
    ),
    "smc": (
        ("smc.base", "SMCInfo", _TEMPERED.first),
        ("smc.tempered", "TemperedSMCState", _TEMPERED.last),
        ("smc.partial_posteriors_path", "PartialPosteriorsSMCState", _TEMPERED.last),
        ("smc.persistent_sampling", "PersistentSMCState", _PERSISTENT.first),
        ("smc.persistent_sampling", "PersistentStateInfo", _PERSISTENT.last),
    ),
    "vi": (("vi.meanfield_vi", "_elbo_step", _elbo_step), ("vi.fullrank_vi", "_elbo_step", _elbo_step)),
    "nested": (("ns.base", "NSInfo", _NESTED.first), ("ns.adaptive", "AdaptiveNSState", _NESTED.last)),
    "pathfinder": (("vi.pathfinder", "PathfinderState", _path),),
}


def patches(kind: str) -> Callable[[], list[Patch]]:
    """What makes the patches for a watch that looks at a part of BlackJAX."""
    return lambda: patches_for(_TABLES[kind])
