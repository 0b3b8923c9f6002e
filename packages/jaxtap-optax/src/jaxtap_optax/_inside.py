"""What an optimizer is made of, read from the closures of its functions: the stages of a chain, and its limits.

Optax keeps neither: a transformation is two functions. Where the names of their variables are others, stages are not
told apart and limits are not known, which a test notices.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

# Limits of optimizers, by the variable that holds them, and what they are called in a row.
LIMITS = {
    "max_consecutive_errors": "max_consecutive_errors",
    "max_linesearch_steps": "max_linesearch_steps",
    "max_backtracking_steps": "max_linesearch_steps",
    "min_scale": "plateau_min_scale",
}
_DEPTH = 12


def variables(function: Any) -> dict[str, Any]:
    """The variables that a function has closed over."""
    function = getattr(function, "__func__", function)
    cells = getattr(function, "__closure__", None)
    if not cells:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def label(update: Any) -> str:
    """What a stage is called: the function that made it, such as `clip_by_global_norm`; of a chain, its stages."""
    stages = variables(update).get("update_fns")
    if isinstance(stages, tuple) and stages:
        return "+".join(map(label, stages))
    inner = variables(update).get("tx")
    if hasattr(inner, "init") and hasattr(inner, "update"):
        return label(raw(inner))
    name = getattr(update, "__qualname__", type(update).__name__)
    return name.split(".<locals>")[0].split(".")[0]


def raw(tx: Any) -> Any:
    """The update function of a transformation, past any hook."""
    return tx[1] if isinstance(tx, tuple) else tx.update


def is_chain(update: Any) -> bool:
    """Whether an update function is that of `optax.chain`."""
    stages = variables(update).get("update_fns")
    return isinstance(update, types.FunctionType) and isinstance(stages, tuple) and all(map(callable, stages))


def with_stages(update: Any, around: Callable[[str, Any], Any]) -> Any:
    """The update function of a chain, each of whose stages is what `around` makes of its label and function."""
    own = variables(update)
    new = own | {"update_fns": tuple(around(label(stage), stage) for stage in own["update_fns"])}
    cells = tuple(types.CellType(new[name]) for name in update.__code__.co_freevars)
    copy = types.FunctionType(update.__code__, update.__globals__, update.__name__, update.__defaults__, cells)
    copy.__kwdefaults__ = update.__kwdefaults__
    return copy


def limits(update: Any) -> dict[str, float]:
    """The limits that an optimizer was built with, as far as they can be read."""
    found: dict[str, float] = {}
    for name, value in _reached(update):
        if name in LIMITS and isinstance(value, (int, float)) and not isinstance(value, bool):
            found.setdefault(LIMITS[name], float(value))
    return found


def _reached(thing: Any) -> Iterator[tuple[str, Any]]:
    """Every variable that a function reaches through others, itself and what they are bound to."""
    seen: set[int] = set()
    pending: list[tuple[Any, int]] = [(thing, 0)]
    while pending:
        now, depth = pending.pop()
        if id(now) in seen or depth > _DEPTH:
            continue
        seen.add(id(now))
        owner = getattr(now, "__self__", None)
        parts = dict(variables(now))
        owner = now if depth == 0 and not callable(now) else owner
        if owner is not None and not isinstance(owner, types.ModuleType):
            parts |= dict(getattr(owner, "__dict__", {}))
        if isinstance(now, functools.partial):
            parts |= {"func": now.func} | now.keywords
        if isinstance(now, (tuple, list)):
            parts |= {str(i): value for i, value in enumerate(now)}
        elif isinstance(now, dict):
            parts |= {str(key): value for key, value in now.items()}
        for name, value in parts.items():
            yield name, value
            if callable(value) or isinstance(value, (tuple, list, dict)):
                pending.append((value, depth + 1))
