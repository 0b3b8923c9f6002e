"""What is sent of a step, computed on the device: a few numbers of its info, its state and its adaptation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap.internal import parts
from jaxtap_blackjax._metric import extremes, extremes_if, is_costly

# Columns whose name is not the field's own.
_CALLED = {"num_trajectory_expansions": "tree_depth", "subiter": "num_shrink"}
# Fields that say nothing of a chain's health.
_LEFT_OUT = ("kinetic_change", "theta", "bracket_left", "bracket_right")


@dataclasses.dataclass(frozen=True)
class OfStep:
    """What is sent of a marked step.

    Attributes:
      extra: names of leaves that are sent whole.
    """

    extra: tuple[str, ...] = ()

    def __call__(self, leaves: Any) -> dict[str, Any]:
        tree = leaves.tree()
        info: Mapping[str, Any] = tree["info"]
        values = {_CALLED.get(k, k): v for k, v in info.items() if k not in _LEFT_OUT and _is_scalar(v)}
        if "tree_depth_limit" in values:
            values["tree_depth_saturated"] = values["tree_depth"] >= values["tree_depth_limit"]
        if "nonans" in values:
            values["is_divergent"] = jnp.logical_not(values.pop("nonans"))
        state: Mapping[str, Any] = tree["state"]
        if "logdensity" in state:
            values["logdensity"] = state["logdensity"]
        if "position" in state:
            values["position_norm"] = _norm(jax.tree.leaves(state["position"]), 0)
        if "logdensity_grad" in state:
            values["gradient_norm"] = _norm(jax.tree.leaves(state["logdensity_grad"]), 0)
        return values | extras(leaves, leaves.names, self.extra)


def extras(leaves: Sequence[Any], names: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """Leaves picked by the end of their dotted name. Of several that fit, the one that lies least deep."""
    found: dict[str, Any] = {}
    for name in wanted:
        tail = parts(name)
        own = [i for i, each in enumerate(names) if parts(each)[-len(tail) :] == tail]
        if own:
            found[name] = leaves[min(own, key=lambda i: len(parts(names[i])))]
    return found


def _is_scalar(value: Any) -> bool:
    return jnp.ndim(value) == 0 if hasattr(value, "dtype") else not isinstance(value, (dict, list, tuple))


def _norm(leaves: Sequence[Any], axes_kept: int) -> Any:
    """Euclidean norm of all leaves together, over all axes but the first `axes_kept`."""
    total: Any = 0.0
    for leaf in leaves:
        wide = jnp.asarray(leaf).astype(jnp.promote_types(jnp.result_type(leaf), jnp.float32))
        total = total + jnp.sum(jnp.square(wide), axis=tuple(range(axes_kept, wide.ndim)))
    return jnp.sqrt(total)


# --- What a warmup's loop returns of each step ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class OfReturned:
    """What is sent of the info that each step of a loop returns: a selector, which fits no other loop.

    Attributes:
      extra: names of leaves that are sent whole.
    """

    extra: tuple[str, ...] = ()

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What a program is told to lack whose loop returns no info."""
        return ("acceptance_rate",)

    def positions(self, names: Sequence[str], treedef: Any) -> list[int]:
        """Positions of the leaves looked at; none where the loop returns no info."""
        info = _info_of(names)
        return sorted({*info.values(), *extras(range(len(names)), names, self.extra).values()}) if info else []

    def __call__(self, leaves: Any) -> dict[str, Any]:
        info = {name: leaves[i] for name, i in _info_of(leaves.names).items()}
        rate = info["acceptance_rate"]
        values = {_CALLED.get(k, k): v for k, v in info.items() if k not in _LEFT_OUT and jnp.ndim(v) == jnp.ndim(rate)}
        chains = jnp.shape(rate)[0] if jnp.ndim(rate) else 0
        return {"chains": chains, "values": values, "extra": extras(leaves, leaves.names, self.extra)}


def _info_of(names: Sequence[str]) -> dict[str, int]:
    """Positions of the fields of an info among what a step returns, by name."""
    split = [parts(name) for name in names]
    own = next((each[:-1] for each in split if each and each[-1] == "acceptance_rate"), None)
    return {} if own is None else {each[-1]: i for i, each in enumerate(split) if each[:-1] == own}


# --- The state of a warmup's loop ----------------------------------------------------------------------------

Group = dict[tuple[str, ...], int]

# What lies beside the step size in an adaptation's state, and nowhere else.
_BESIDE = ("ss_state", "inverse_mass_matrix", "L", "trajectory_length", "alpha")
# How far a slow window has come, by the estimator that counts it.
_COUNTERS = (("wc_state", "sample_size"), ("fisher_block", "count"), ("buffer_idx",))


def adaptation_of(names: Sequence[str]) -> Group:
    """Positions of the leaves of an adaptation's state by the part of their name within it; empty if there is none."""
    split = [parts(name) for name in names]
    for own in sorted((each for each in split if each and each[-1] == "step_size"), key=len):
        prefix = own[:-1]
        group = {each[len(prefix) :]: i for i, each in enumerate(split) if each[: len(prefix)] == prefix}
        if len(prefix) and any(inside[0] in _BESIDE for inside in group if inside):
            return group
    return {}


def chain_of(names: Sequence[str]) -> Group:
    """Positions of the leaves of a chain's state in a loop's state, likewise."""
    split = [parts(name) for name in names]
    for own in sorted((each for each in split if each and each[-1] == "logdensity"), key=len):
        prefix = own[:-1]
        return {each[len(prefix) :]: i for i, each in enumerate(split) if each[: len(prefix)] == prefix}
    return {}


@dataclasses.dataclass(frozen=True)
class OfAdaptation:
    """What is sent of the state of a warmup's loop: a selector, which fits no other loop.

    Attributes:
      extra: names of leaves that are sent whole.
      every: whether to take the spectrum of a dense mass matrix at each step, not only where it may have changed.
    """

    extra: tuple[str, ...] = ()
    every: bool = False

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What a program is told to lack that has no such loop."""
        return ("step_size",)

    def positions(self, names: Sequence[str], treedef: Any) -> list[int]:
        """Positions of the leaves looked at; none where the loop adapts nothing."""
        adaptation = adaptation_of(names)
        if not adaptation:
            return []
        extra = extras(range(len(names)), names, self.extra)
        return sorted({*adaptation.values(), *chain_of(names).values(), *extra.values()})

    def __call__(self, leaves: Any) -> dict[str, Any]:
        adaptation = {k: leaves[i] for k, i in adaptation_of(leaves.names).items()}
        chain = {k: leaves[i] for k, i in chain_of(leaves.names).items()}
        density = chain.get(("logdensity",), jnp.zeros(()))
        chains = jnp.shape(density)[0] if jnp.ndim(density) else 0
        values = {name: _per_chain(v, chains) for name, v in self._adapted(adaptation).items()}
        values |= _of_chain(chain, 1 if chains else 0)
        return {"chains": chains, "values": values, "extra": extras(leaves, leaves.names, self.extra)}

    def _adapted(self, group: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
        def first(*names: tuple[str, ...]) -> Any:
            return next((group[name] for name in names if name in group), None)

        average = first(("ss_state", "log_step_size_avg"), ("log_step_size_moving_average",))
        values = {
            "step_size": group[("step_size",)],
            "step_size_avg": None if average is None else jnp.exp(average),
            "trajectory_length": first(("trajectory_length",)),
            "mclmc_L": first(("L",)),
            "_updates": first(("ss_state", "step")),
            "_error": first(("ss_state", "avg_error")),
            "_counted": next((v for k, v in group.items() if any(k[-len(c) :] == c for c in _COUNTERS)), None),
        }
        values |= self._spectrum(group, values["_updates"])
        return {name: value for name, value in values.items() if value is not None}

    def _spectrum(self, group: Mapping[tuple[str, ...], Any], updates: Any) -> dict[str, Any]:
        scales = [v for k, v in group.items() if k[0] == "position_sigma"]
        if scales:
            flat = [jnp.square(v).reshape(v.shape[0], -1) for v in scales]
            matrix: Any = jnp.concatenate(flat, axis=1)
            return _named(jnp.min(matrix, axis=1), jnp.max(matrix, axis=1))
        own = [v for k, v in group.items() if k[0] == "inverse_mass_matrix"]
        if not own:
            return {}
        matrix = own[0] if len(own) == 1 else tuple(own)
        if self.every or updates is None or not is_costly(matrix):
            return _named(*extremes(matrix))
        # Dual averaging begins anew where a window ends, which is where the matrix changes.
        return _named(*extremes_if(updates <= 2, matrix))


def _named(low: Any, high: Any) -> dict[str, Any]:
    return {"mass_matrix_min": low, "mass_matrix_max": high, "mass_matrix_condition": high / low}


def _of_chain(chain: Mapping[tuple[str, ...], Any], axes: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if ("logdensity",) in chain:
        values["logdensity"] = chain[("logdensity",)]
    for column, field in (("position_norm", "position"), ("gradient_norm", "logdensity_grad")):
        own = [v for k, v in chain.items() if k and k[0] == field]
        if own:
            values[column] = _norm(own, axes)
    return values


def _per_chain(value: Any, chains: int) -> Any:
    """A value that chains share, for each; one of folds of chains (MEADS), for each chain of its fold."""
    if not chains:
        return value
    if not jnp.ndim(value):
        return jnp.broadcast_to(value, (chains,))
    return jnp.repeat(value, chains // value.shape[0], axis=0)
