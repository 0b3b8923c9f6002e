"""What jit looks at in arguments, argument by argument, and how two calls differ in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that can be given by position; none where the function does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def describe(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], names: tuple[str, ...] = (), values: bool = True
) -> dict[str, str]:
    """Each leaf of the arguments by its path, with shape, dtype and weak type; what is no array with its value.

    Args:
      args: the positional arguments.
      kwargs: the keyword arguments.
      names: the names of the positional parameters, as far as they are known.
      values: whether a Python number is told by its value too, which jit looks at only in static arguments.
    """
    found: dict[str, str] = {}
    named = [(names[i] if i < len(names) else f"args[{i}]", value) for i, value in enumerate(args)]
    for name, value in [*named, *sorted(kwargs.items())]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(value)
        if not leaves:
            found[name] = repr(value)
        for path, leaf in leaves:
            found[name + jax.tree_util.keystr(path)] = _leaf(leaf, values)
    return found


def _leaf(leaf: Any, values: bool) -> str:
    if isinstance(leaf, bool | int | float | complex):
        return f"{type(leaf).__name__} {leaf!r}" if values else f"a Python {type(leaf).__name__}"
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return repr(leaf)
    weak = " weak" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]{weak}{_sharding(leaf)}"


def _sharding(leaf: Any) -> str:
    sharding = getattr(leaf, "sharding", None)
    return "" if sharding is None or len(sharding.device_set) == 1 else f" {sharding}"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The arguments in which two calls differ, each as "name: before -> after"."""
    found: list[str] = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, "not there"), after.get(name, "not there")
        if old != new:
            found.append(f"{name}: {old} -> {new}")
    return found
