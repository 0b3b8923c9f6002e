"""What is sent of one call of an optimizer, computed on the device: a few numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxtap.internal import leaves_by, non_finite, norm
from jaxtap_optax._selectors import IN_STATE


def _norm(tree: Any) -> Any:
    return norm(leaves_by(tree, None).get("", []))


def of_state(state: Any) -> dict[str, Any]:
    """Every named value that an optimizer's state has; one that is there several times by its place."""
    found: dict[str, Any] = {}
    for selector in IN_STATE:
        several = selector.every(state)
        for where, value in several.items():
            found[selector.name if len(several) == 1 else f"{selector.name}/{where}"] = value
    return found


def of_call(leaves: Any) -> dict[str, Any]:
    """What a row holds of one call.

    Args:
      leaves: of the marked value: `grads`, `updates`, `params` (None where they were not given), the new `state`,
        `value` (the loss, where the optimizer was given it), `stages` (updates after each stage of a chain, by label)
        and `limits`.
    """
    tree = leaves.tree()
    grads = leaves_by(tree["grads"], None).get("", [])
    found = {"grad_norm": norm(grads), "update_norm": _norm(tree["updates"]), "nonfinite": non_finite(grads)}
    if tree["params"] is not None:
        found["param_norm"] = _norm(tree["params"])
        found["update_ratio"] = found["update_norm"] / found["param_norm"]
    if tree["value"] is not None:
        found["value"] = jnp.asarray(tree["value"])
    found |= of_state(tree["state"]) | of_stages(tree["stages"], found["grad_norm"])
    return found | {name: jnp.asarray(value) for name, value in tree["limits"].items()}


def of_stages(stages: dict[str, Any], before: Any) -> dict[str, Any]:
    """The norm after each stage of a chain, and of a clip the norms before and after and their ratio."""
    found: dict[str, Any] = {}
    for name, updates in stages.items():
        after = _norm(updates)
        number, _, stage = name.partition(" ")
        found[f"stage_norm/{int(number)} {stage}"] = after
        if _clips(stage):
            found |= {"clip_before": before, "clip_after": after, "clip_ratio": after / before}
        before = after
    return found


def _clips(label: str) -> bool:
    return "clip" in label and "+" not in label


def is_array(leaf: Any) -> bool:
    """Whether a leaf can be marked."""
    return isinstance(leaf, (bool, int, float, complex)) or hasattr(leaf, "dtype")


def arrays(tree: Any) -> Any:
    """A tree without the leaves that are no arrays, such as functions."""
    return jax.tree_util.tree_map(lambda leaf: leaf if is_array(leaf) else None, tree)
