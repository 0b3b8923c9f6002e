"""What is sent of one step, computed on the device: one array of numbers, whose names are known beforehand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap.internal import Selector, leaves_by, non_finite, square_sum
from jaxtap_flax._loss import BETWEEN

COLUMNS = ("loss", "learning_rate", "grad_norm", "param_norm", "update_norm", "update_ratio", "nonfinite")

_learning_rate = Selector(
    "learning_rate",
    (
        ("InjectStatefulHyperparamsState", "hyperparams.learning_rate"),
        ("InjectHyperparamsState", "hyperparams.learning_rate"),
        ("", "hyperparams.learning_rate"),
        ("ScaleByZoomLinesearchState", "learning_rate"),
        ("ScaleByBacktrackingLinesearchState", "learning_rate"),
    ),
)


def values(tree: Mapping[str, Any], by: str | None) -> dict[str, Any]:
    """A step's numbers by column, scalars.

    Args:
      tree: of the marked value: `step`, `loss`, `grads`, `params`, `updates`, the optimizer's `state`, `stats`, each
        None where it is not known; and `order`, the modules in the order of the forward pass.
      by: as in `jaxtap.internal.group_of`.
    """
    found: dict[str, Any] = {}
    if tree["step"] is not None:
        found["step"] = jnp.asarray(tree["step"]).astype(jnp.int32)
    if tree["loss"] is not None:
        found["loss"] = tree["loss"]
    for rate in list(_learning_rate.every(tree["state"]).values())[:1]:
        found["learning_rate"] = rate
    sums = {name: _sums(tree[kind], by) for name, kind in _NORMS.items() if tree[kind] is not None}
    bad = {} if tree["grads"] is None else _bad(tree["grads"], by)
    whole = {name: {"": _total(parts)} for name, parts in sums.items()}
    found |= _norms(whole, {"": _total(bad)} if tree["grads"] is not None else {})
    if by is not None:
        order = [path for words in tree["order"] for path in words.split(BETWEEN)]
        found |= _norms({name: _sorted(parts, order) for name, parts in sums.items()}, _sorted(bad, order))
    return found | _stats(tree["stats"])


_NORMS = {"grad_norm": "grads", "param_norm": "params", "update_norm": "updates"}


def _sums(tree: Any, by: str | None) -> dict[str, Any]:
    return {group: square_sum(leaves) for group, leaves in leaves_by(tree, by).items()}


def _sorted(parts: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Groups in the order of the forward pass; those that were not seen in it come last, as they were."""

    where = {path: i for i, path in enumerate(order)}

    def place(group: str) -> int:
        # A leaf comes where the innermost module that holds it does.
        while group not in where and "/" in group:
            group = group.rpartition("/")[0]
        return where.get(group, len(order))

    return {group: parts[group] for group in sorted(parts, key=place)}


def _bad(tree: Any, by: str | None) -> dict[str, Any]:
    return {group: non_finite(leaves) for group, leaves in leaves_by(tree, by).items()}


def _total(parts: dict[str, Any]) -> Any:
    total: Any = jnp.float32(0.0)
    for part in parts.values():
        total = total + part.astype(jnp.float32)
    return total


def _norms(sums: dict[str, dict[str, Any]], bad: dict[str, Any]) -> dict[str, Any]:
    """Norms, their ratio and the count of bad elements, each by group."""
    found = {f"{name}/{group}": jnp.sqrt(part) for name, parts in sums.items() for group, part in parts.items()}
    for group in sums.get("update_norm", {}):
        if group in sums.get("param_norm", {}):
            found[f"update_ratio/{group}"] = found[f"update_norm/{group}"] / found[f"param_norm/{group}"]
    found |= {f"nonfinite/{group}": count for group, count in bad.items()}
    return {name.removesuffix("/"): value for name, value in found.items()}


def _stats(stats: Any) -> dict[str, Any]:
    """The least variance that each BatchNorm keeps."""
    if stats is None:
        return {}
    leaves = leaves_by(stats, "leaf").items()
    variances = {name: found for name, found in leaves if name.rpartition("/")[2] == "var"}
    least = {name.rpartition("/")[0]: jnp.min(found[0]) for name, found in variances.items()}
    return {f"batch_stats_var/{layer}": value for layer, value in least.items()}


@functools.cache
def of_step(by: str | None) -> Callable[[Any], Any]:
    """A selector of the marked value: all numbers in one array, under one key that names them."""

    def select(leaves: Any) -> dict[str, Any]:
        found = values(leaves.tree(), by)
        step = {"step": found.pop("step")} if "step" in found else {}
        names = BETWEEN.join(found)
        numbers = [jnp.asarray(value).astype(jnp.float32).reshape(()) for value in found.values()]
        return step | {names: jnp.stack(numbers)}

    return select


@functools.lru_cache(maxsize=64)
def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split(BETWEEN))


def unpacked(value: Mapping[str, Any]) -> dict[str, Any]:
    """What `of_step` has sent, by column."""
    found: dict[str, Any] = {}
    for names, numbers in value.items():
        if names == "step":
            found["step"] = int(numbers)
        else:
            found |= zip(_split(names), numbers.tolist(), strict=True)
    return found


@functools.cache
def columns_of(by: str | None) -> Callable[[Any], dict[str, Any]]:
    """A step's numbers by column, as a function of the marked value's leaves."""
    return lambda leaves: values(leaves.tree(), by)


@functools.lru_cache(maxsize=64)
def gate(every: int, fires: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Which steps are sent: each `every`-th, by the state's own count, and those in which something fires."""

    def wanted(leaves: Any) -> Any:
        step = leaves.tree()["step"]
        return jnp.bool_(True) if step is None else (jnp.asarray(step) % every == 0) | fires(leaves)

    return wanted
