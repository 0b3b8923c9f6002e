"""From what arrives to the columns of a row: one chain at a time, and what follows from the steps before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtap import TapEvent

FAST, SLOW, WINDOW_END = "fast", "slow", "window end"
_SPECTRUM = ("mass_matrix_min", "mass_matrix_max", "mass_matrix_condition")

_STATE = ("logdensity", "position_norm", "gradient_norm")


def by_chain(event: TapEvent) -> Iterable[TapEvent]:
    """An event of a state that holds all chains, as one event a chain, whose lane is the chain."""
    value = event.value
    if not isinstance(value, dict) or "chains" not in value:
        return (event,)
    if not value["chains"]:
        return (dataclasses.replace(event, value=value["values"] | value["extra"]),)
    return [
        dataclasses.replace(
            event,
            lane=(*event.lane, i),
            value={name: each[i] for name, each in value["values"].items()} | value["extra"],
        )
        for i in range(value["chains"])
    ]


class WarmupColumns:
    """The columns of a warmup's rows. It remembers the last step of each chain, for what only two steps tell."""

    def __init__(self) -> None:
        self._before: dict[Any, dict[str, Any]] = {}
        self._loops: set[str] = set()

    def __call__(self, event: TapEvent) -> Mapping[str, Any] | None:
        if event.kind == "mark":
            # The loop's own state counts: MEADS and MCLMC change what the kernel has returned.
            known = any(event.path.startswith(f"{loop}/") for loop in self._loops)
            return {name: v for name, v in event.value.items() if not known or name not in _STATE}
        if event.kind != "carry":
            return None
        self._loops.add(event.path)
        values = dict(event.value)
        key = (event.path, event.lane, event.outer, event.call)
        before = self._before.get(key, {})
        self._before[key] = values
        for name in _SPECTRUM:
            if name in values and math.isnan(values[name]) and name in before:
                values[name] = before[name]
        stage = _stage(values, before)
        shown = {name: value for name, value in values.items() if not name.startswith("_")}
        return shown if stage is None else shown | {"stage": stage}


def _stage(values: Mapping[str, Any], before: Mapping[str, Any]) -> str | None:
    """The stage of the schedule that a step was in.

    Dual averaging counts from 1, and begins anew where a window ends; an estimator of the mass matrix counts draws in
    slow windows alone.
    """
    if "_updates" not in values or "_counted" not in values:
        return None
    if values["_updates"] == 1:
        return WINDOW_END
    return SLOW if values["_counted"] != before.get("_counted", 0) else FAST


def mark_columns(event: TapEvent) -> Mapping[str, Any] | None:
    """The columns of a row that is of one marked value."""
    return event.value if event.kind == "mark" else None
