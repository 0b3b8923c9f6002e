"""What is sent of what is not a chain, computed on the device, and what it adds to a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap import TapEvent
from jaxtap.internal import norm, parts, variant

# --- On the device -------------------------------------------------------------------------------------------


def as_marked(leaves: Any) -> dict[str, Any]:
    """A value of a few numbers: all of it."""
    tree: dict[str, Any] = leaves.tree()
    return tree


def of_smc(leaves: Any) -> dict[str, Any]:
    """A step of SMC: particles' weights and inner kernels in a few numbers."""
    tree: dict[str, Any] = leaves.tree()
    weights = tree.pop("weights").reshape(-1)
    update = tree.pop("update")
    total = jnp.sum(weights)
    ess = jnp.square(total) / jnp.sum(jnp.square(weights))
    share = ess / weights.shape[0] if "iteration" not in tree else None
    tree.pop("iteration", None)
    values = {_RENAMED.get(name, name): jnp.mean(value) if jnp.ndim(value) else value for name, value in tree.items()}
    values |= {name: jnp.mean(jnp.asarray(value, jnp.float32)) for name, value in update.items()}
    return values | {"ess": ess} | ({} if share is None else {"ess_share": share})


_RENAMED = {"tempering_param": "tempering_parameter", "lmbda": "tempering_parameter", "data_mask": "data_share"}


def of_vi(leaves: Any) -> dict[str, Any]:
    """A step of variational inference: the ELBO before it, and how far the parameters went."""
    tree = leaves.tree()
    step, parameters = (norm(jax.tree.leaves(tree[name])) for name in ("step", "parameters"))
    return {"elbo": tree["elbo"], "step_norm": step, "parameter_norm": parameters, "step_ratio": step / parameters}


def of_nested(leaves: Any) -> dict[str, Any]:
    """A step of nested sampling: the evidence so far, what the live points may add, and the inner slices."""
    tree = leaves.tree()
    values = {name: tree[name] for name in ("logz", "logz_live", "logx")}
    # The usual stopping rule looks at how much the live points may still add.
    values["remaining"] = tree["logz_live"] - tree["logz"]
    values["num_live"] = jnp.int32(tree["live"].shape[0])
    values["loglikelihood_min"] = jnp.min(tree["live"])
    inner: Mapping[str, Any] = tree["inner"]
    if "num_shrink" in inner:
        values["num_shrink"] = jnp.mean(jnp.asarray(inner["num_shrink"], jnp.float32))
        values["num_shrink_max"] = jnp.max(inner["num_shrink"])
    if "is_accepted" in inner:
        values["acceptance_rate"] = jnp.mean(jnp.asarray(inner["is_accepted"], jnp.float32))
    return values


# --- L-BFGS --------------------------------------------------------------------------------------------------

_SEARCH: dict[tuple[str, ...], str] = {
    ("learning_rate",): "learning_rate",
    ("value",): "value",
    ("info", "num_linesearch_steps"): "linesearch_steps",
    ("info", "decrease_error"): "decrease_error",
    ("info", "curvature_error"): "curvature_error",
}


@dataclasses.dataclass(frozen=True)
class OfSearch:
    """What is sent of the state of Pathfinder's L-BFGS: a selector, which fits no other loop."""

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What a program is told to lack that has no such loop."""
        return ("decrease_error",)

    def positions(self, names: Sequence[str], treedef: Any) -> list[int]:
        """Positions of the leaves looked at; none where the loop is another."""
        found = self._found(names)
        return sorted(found.values()) if "decrease_error" in found and "_going_on" in found else []

    def _found(self, names: Sequence[str]) -> dict[str, int]:
        """Positions by column. The state is `((step, history), going_on)`."""
        split = [parts(name) for name in names]
        own = next((each[:-2] for each in split if each[-2:] == ("info", "decrease_error")), None)
        if own is None:
            return {}
        found = {_SEARCH[each[len(own) :]]: i for i, each in enumerate(split) if each[len(own) :] in _SEARCH}
        memory = any("diff_params_memory" in each for each in split)
        flags = [i for i, each in enumerate(split) if each[-1] == "1" and len(each) <= 2]
        return found | ({"_going_on": flags[-1]} if flags and (memory or len(split) == len(found) + 1) else {})

    def __call__(self, leaves: Any) -> dict[str, Any]:
        return {name: leaves[i] for name, i in self._found(leaves.names).items()}


# --- On the host ---------------------------------------------------------------------------------------------


class SmcColumns:
    """The columns of SMC's rows, with what follows from the steps before."""

    def __init__(self) -> None:
        self._before: dict[Any, tuple[float, float]] = {}

    def __call__(self, event: TapEvent) -> Mapping[str, Any] | None:
        if event.kind != "mark":
            return None
        values = dict(event.value)
        inside = event.step >= 0
        key = (event.path, event.lane, event.outer, event.call if inside else 0)
        so_far, evidence = self._before.get(key, (0.0, 0.0))
        now = values.get("tempering_parameter", np.nan)
        evidence += float(values.get("log_evidence_increment", np.nan))
        # A sampler that is run again begins at 0 again.
        if now < so_far:
            so_far, evidence = 0.0, float(values.get("log_evidence_increment", np.nan))
        self._before[key] = (float(now), evidence)
        values.setdefault("log_evidence", evidence)
        is_under_way = so_far < 1.0 and not np.isnan(now)
        return values | {"tempering_advance": float(now) - so_far} if is_under_way else values


class PathfinderColumns:
    """The columns of Pathfinder's rows. Once L-BFGS has converged, the steps left of its loop do nothing."""

    def __init__(self) -> None:
        self._ended: set[Any] = set()

    def __call__(self, event: TapEvent) -> Mapping[str, Any] | None:
        if event.kind == "mark":
            return event.value
        if event.kind != "carry":
            return None
        values = dict(event.value)
        key = (event.path, event.lane, event.outer, event.call)
        if key in self._ended:
            return None
        if not values.pop("_going_on"):
            self._ended.add(key)
        return values


def by_point(event: TapEvent) -> Iterable[TapEvent]:
    """The ELBOs of a path, as one event a point; points that were not reached have none."""
    if event.kind != "mark":
        return (event,)
    elbo = event.value["elbo"]
    return [
        variant(event, step=i, total=len(elbo), value={"elbo": value})
        for i, value in enumerate(elbo.tolist())
        if value != -math.inf
    ]
