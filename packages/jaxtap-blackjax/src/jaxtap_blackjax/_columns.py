"""From what arrives to the columns of a row: one chain at a time, and what follows from the steps before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtap import TapEvent
from jaxtap.internal import variant

# Ends the name of a mark in a loop that tunes by its draws, and has nothing of that in its state.
TUNING = "_tuning"
FAST, SLOW, WINDOW_END = "fast", "slow", "window end"
_SPECTRUM = ("mass_matrix_min", "mass_matrix_max", "mass_matrix_condition")

_STATE = ("logdensity", "position_norm", "gradient_norm")


def by_chain(event: TapEvent) -> Iterable[TapEvent]:
    """An event of a state that holds all chains, as one event a chain, whose lane is the chain."""
    value = event.value
    if not isinstance(value, dict) or "chains" not in value:
        return (event,)
    extra: dict[str, Any] = value["extra"]
    if not value["chains"]:
        return (variant(event, value=value["values"] | extra),)
    # A list of floats takes a fraction of what as many elements of an array take.
    columns = {name: each.tolist() for name, each in value["values"].items()}
    return [
        variant(event, lane=(*event.lane, i), value=dict(zip(columns, own, strict=True)) | extra)
        for i, own in enumerate(zip(*columns.values(), strict=True))
    ]


class WarmupColumns:
    """The columns of a warmup's rows: transitions in loops that adapt something, and what they adapt.

    It remembers the last step of each chain, for what only two steps tell. Transitions elsewhere, as of the sampling
    that follows in the same block, are no rows.

    Args:
      sample_every: how often the loop's own state is sent.
    """

    def __init__(self, sample_every: int = 1) -> None:
        self._sample_every = sample_every
        self._before: dict[Any, dict[str, Any]] = {}
        self._loops: set[str] = set()
        # Whether an address is in one of the loops.
        self._inside: dict[str, bool] = {}
        self._held: dict[Any, tuple[int, dict[str, Any]]] = {}

    def __call__(self, event: TapEvent) -> Mapping[str, Any] | None:
        if event.kind == "mark":
            return self._transition(event)
        if event.kind == "output":
            return event.value
        return self._adaptation(event) if event.kind == "carry" else None

    def _transition(self, event: TapEvent) -> Mapping[str, Any] | None:
        if event.path not in self._inside:
            self._inside[event.path] = any(event.path.startswith(f"{loop}/") for loop in self._loops)
        if self._inside[event.path]:
            if event.step % self._sample_every:
                return event.value
            # The loop's own state counts: MEADS and MCLMC change what the kernel has returned.
            return {name: value for name, value in event.value.items() if name not in _STATE}
        if TUNING in event.path:
            return event.value
        # Whether the loop adapts something is told by its own event, which may come after this one.
        self._held[(event.lane, event.outer)] = (event.step, event.value)
        return None

    def _adaptation(self, event: TapEvent) -> Mapping[str, Any]:
        if event.path not in self._loops:
            self._loops.add(event.path)
            self._inside.clear()
        key = (event.path, event.lane, event.outer, event.call)
        values, before = dict(event.value), self._before.get(key, {})
        self._before[key] = values
        step, held = self._held.pop((event.lane, event.outer), (-1, {}))
        for name in _SPECTRUM:
            if name in values and math.isnan(values[name]) and name in before:
                values[name] = before[name]
        stage = _stage(values, before)
        shown = {name: value for name, value in values.items() if not name.startswith("_")}
        shown = shown if stage is None else shown | {"stage": stage}
        return held | shown if step == event.step else shown


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
