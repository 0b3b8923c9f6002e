"""What training loops call things: selectors by name, for the state and the outputs of a user's own loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap import Leaves
from jaxtap.internal import Selector, non_finite, norm
from jaxtap_flax._activations import of_output, rms


def _dead(leaves: list[Any]) -> Any:
    return of_output(leaves)["dead_fraction"]


def _least(leaves: list[Any]) -> Any:
    return jnp.min(jnp.stack([jnp.min(leaf) for leaf in leaves]))


def _named(*fields: str) -> tuple[tuple[str, str], ...]:
    return tuple(("", field) for field in fields)


step = Selector("step", (("TrainState", "step"), *_named("step")))
loss = Selector("loss", _named("loss"))
grad_norm = Selector("grad_norm", _named("grads", "gradients", "grad"), norm)
param_norm = Selector("param_norm", (("TrainState", "params"), *_named("params")), norm)
update_norm = Selector("update_norm", _named("updates"), norm)
activation_rms = Selector("activation_rms", _named("intermediates", "activations"), rms)
dead_fraction = Selector("dead_fraction", _named("intermediates", "activations"), _dead)
nonfinite = Selector("nonfinite", _named("grads", "gradients", "grad"), non_finite)
batch_stats_var = Selector("batch_stats_var", (("TrainState", "batch_stats"), *_named("batch_stats")), _least, "var")


class _Ratio:
    """The norm of the updates over that of the parameters, where a loop's state or outputs hold both."""

    leaf_names = ("update_ratio",)

    def positions(self, names: Sequence[str], treedef: Any) -> list[int]:
        """Positions of the leaves of both; empty where one is missing."""
        found = [each.positions(names, treedef) for each in (update_norm, param_norm)]
        return sorted({*found[0], *found[1]}) if all(found) else []

    def __call__(self, state: Any) -> Any:
        """The ratio in a state, or in the leaves that `positions` has found."""
        if not isinstance(state, Leaves):
            return update_norm(state) / param_norm(state)
        above = update_norm.positions(state.names, None)
        below = [i for i in range(len(state)) if i not in above]
        return norm([state[i] for i in above]) / norm([state[i] for i in below])

    def __repr__(self) -> str:
        return "update_ratio"


update_ratio = _Ratio()
