"""What goes wrong in training: tripwires, each with a default and where that comes from."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxtap.internal import (
    NonFinite,
    Often,
    OnColumn,
    Outside,
    Row,
    Spike,
    Trip,
    Tripwire,
    Unchanged,
    Watching,
    fitting,
)


def layers(row: Row, column: str) -> dict[str, float]:
    """A column's values by layer, in the order of the forward pass."""
    start = len(column) + 1
    return {name[start:]: row.values[name] for name in fitting(f"{column}/*", tuple(row.values))}


@dataclasses.dataclass(frozen=True)
class NonFiniteGradient:
    """The first step whose gradient is not finite, and the layer where that began.

    A bad cotangent goes on from the layer that makes it to those before it. So where the forward pass was finite, the
    culprit is the last bad layer of the forward pass; where it was not, every layer is bad, and the activations tell.
    """

    name: str = "nonfinite_gradient"

    def start(self) -> Watching:
        """Begin to look at rows."""
        bad: set[Any] = set()

        def look(row: Row) -> Iterable[Trip]:
            if not row.values.get("nonfinite", 0):
                bad.discard(row.series)
                return ()
            if row.series in bad:
                return ()
            bad.add(row.series)
            return (self._trip(row),)

        return look

    def _trip(self, row: Row) -> Trip:
        sick = [layer for layer, count in layers(row, "nonfinite").items() if count]
        loss = row.values.get("loss")
        forward_is_bad = loss is not None and not math.isfinite(loss)
        layer = "" if not sick else sick[0] if forward_is_bad else sick[-1]
        forward = "the forward pass was finite" if not forward_is_bad else f"the forward pass was not: loss {loss}"
        forward = "" if loss is None else f"; {forward}"
        where = f" in {layer}" if layer else ""
        more = f" and {len(sick) - 1} more layers" if len(sick) > 1 else ""
        message = f"gradient is not finite{where}{more} ({row['nonfinite']:.0f} elements){forward}"
        return Trip(self.name, message, row, f"nonfinite/{layer}" if layer else "nonfinite")

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """As a traced predicate of a step's values, by column."""
        return values["nonfinite"] > 0 if "nonfinite" in values else None


@dataclasses.dataclass(frozen=True)
class LayerApart:
    """A layer whose parameters are out of proportion with those of the others."""

    factor: float
    name: str = "layer_apart"

    def start(self) -> Watching:
        """Begin to look at rows."""
        told: set[Any] = set()

        def look(row: Row) -> Iterable[Trip]:
            columns = fitting("param_norm/*", tuple(row.values))
            norms = [row.values[column] for column in columns]
            middle = statistics.median(norms) if len(norms) > 2 else math.inf
            limit = self.factor * middle
            apart = {c: norm for c, norm in zip(columns, norms, strict=True) if 0 < limit < norm}
            if not apart and not told:
                return ()
            return self._told(row, apart, middle, told, columns)

        return look

    def _told(
        self, row: Row, apart: Mapping[str, float], middle: float, told: set[Any], columns: Sequence[str]
    ) -> list[Trip]:
        trips: list[Trip] = []
        for column in columns:
            key, layer = (row.series, column), column.partition("/")[2]
            if column not in apart:
                told.discard(key)
            elif key not in told:
                told.add(key)
                norm = apart[column]
                message = f"{layer} has a norm of {norm:.3g}, {norm / middle:.0f} times the median of all layers"
                trips.append(Trip(self.name, message, row, column))
        return trips

    def at_once(self, values: Mapping[str, Any]) -> Any:
        """It takes all layers: decided on the host."""
        return None


def nonfinite_gradient() -> Tripwire:
    """The gradient is not finite; says in which layer that began, and whether the forward pass still was.

    Any element counts, as for `optax.apply_if_finite`.

    >>> nonfinite_gradient().name
    'nonfinite_gradient'
    """
    return NonFiniteGradient()


def layer_apart(factor: float = 30.0) -> Tripwire:
    """The parameters of one layer are out of proportion, as when it was initialised on another scale.

    Args:
      factor: times the median of all layers' norms; needs at least three layers. 30 is a judgement: norms of common
        initialisers grow as the square root of a layer's size, which seldom differs a thousandfold.

    >>> layer_apart(factor=10.0).factor
    10.0
    """
    return LayerApart(factor)


def gradient_spike(factor: float = 100.0, window: int = 50) -> Tripwire:
    """The gradient's norm is far above its running median.

    Args:
      factor: times the median. 100 is a judgement.
      window: over how many steps; at least 10 must have passed. 50 is a judgement.

    >>> bad = gradient_spike(factor=10.0).rule.fresh()
    >>> [bad(value) for value in [*[1.0] * 10, 50.0]]
    [False, False, False, False, False, False, False, False, False, False, True]
    """
    says = f"gradient norm {{value:.3g}} is over {factor:g} times its median"
    return OnColumn("gradient_spike", "grad_norm", Spike(factor, window), says)


def layer_gradient_spike(factor: float = 10.0, window: int = 50) -> Tripwire:
    """The gradient of one layer is far above its own running median, which that of the whole may hide.

    It is not among the defaults: layers that are seldom used, such as embeddings, spike by themselves.

    Args:
      factor: times the median. 10 is a judgement.
      window: over how many steps; at least 10 must have passed. 50 is a judgement.

    >>> bad = layer_gradient_spike(factor=10.0).rule.fresh()
    >>> [bad(value) for value in [*[1.0] * 10, 50.0]][-2:]
    [False, True]
    """
    says = f"gradient of {{layer}} is over {factor:g} times its median: norm {{value:.3g}}"
    return OnColumn("layer_gradient_spike", "grad_norm/*", Spike(factor, window), says)


def vanishing_gradient(floor: float = 1e-7, steps: int = 20) -> Tripwire:
    """A layer's gradient is next to nothing, step after step.

    Args:
      floor: of its norm. 1e-7, the spacing of float32 numbers at 1, is a judgement.
      steps: in how many steps, one after the other. 20 is a judgement.

    >>> bad = vanishing_gradient(steps=2).rule.fresh()
    >>> [bad(value) for value in (1.0, 1e-9, 1e-9)]
    [False, False, True]
    """
    says = f"gradient of {{layer}} vanishes: norm {{value:.2g}} (< {floor:.0e}) for {steps} steps"
    return OnColumn("vanishing_gradient", "grad_norm/*", Often(Outside(low=floor), steps), says)


def update_ratio_outside(low: float = 1e-7, high: float = 0.1) -> tuple[Tripwire, Tripwire]:
    """The norm of the update, over that of the parameters, is not what trains well.

    About 1e-3 is healthy: a rule of thumb of Stanford's course CS231n ("ratio of weights:updates").

    Args:
      low: below which, for 20 steps, nothing is learnt. A judgement.
      high: above which a single step rewrites the parameters. A judgement.

    >>> too_large, too_small = update_ratio_outside()
    >>> too_large.rule.fresh()(0.5), too_large.rule.fresh()(1e-3)
    (True, False)
    """
    return (
        OnColumn(
            "update_too_large",
            "update_ratio",
            Outside(high=high),
            f"update is {{value:.2g}} of the parameters (> {high:g})",
        ),
        OnColumn(
            "update_too_small",
            "update_ratio",
            Often(Outside(low=low), 20),
            f"update is {{value:.2g}} of the parameters (< {low:.0e}) for 20 steps",
        ),
    )


def dead_units(share: float = 0.95, steps: int = 20) -> Tripwire:
    """Nearly all that a module returns is zero, as behind a ReLU whose units have died. Needs activations.

    Args:
      share: of zeros. 0.95 is a judgement.
      steps: in how many steps, one after the other. 20 is a judgement.

    >>> bad = dead_units(steps=2).rule.fresh()
    >>> [bad(value) for value in (1.0, 0.5, 1.0, 1.0)]
    [False, False, False, True]
    """
    says = f"{{value:.0%}} of what {{row[module]}} returns is zero (> {share:.0%}) for {steps} steps"
    return OnColumn("dead_units", "dead_fraction", Often(Outside(high=share), steps), says)


def nonfinite_activation() -> Tripwire:
    """A module has returned what is not finite: the first one that says so is where it began. Needs activations.

    >>> bad = nonfinite_activation().rule.fresh()
    >>> [bad(value) for value in (0, 3)]
    [False, True]
    """
    says = "{row[module]} has returned {value:.0f} elements that are not finite"
    return OnColumn("nonfinite_activation", "activation_nonfinite", Outside(high=0), says)


def batch_stats_collapse(floor: float = 1e-8) -> Tripwire:
    """A BatchNorm divides by next to nothing: the least variance that it keeps has collapsed, or is not finite.

    Args:
      floor: of the variance. 1e-8 is a judgement; Flax adds `epsilon`, 1e-5 by default, to it.

    >>> bad = batch_stats_collapse().rule.fresh()
    >>> [bad(value) for value in (0.5, 1e-12)]
    [False, True]
    """
    says = f"variance of {{layer}} collapsed: {{value:.2g}} (< {floor:.0e})"
    return OnColumn("batch_stats_collapse", "batch_stats_var/*", Outside(low=floor, nan=True), says)


def loss_spike(factor: float = 10.0, window: int = 50) -> Tripwire:
    """The loss is far above its running median.

    Args:
      factor: times the median. 10 is a judgement.
      window: over how many steps; at least 10 must have passed. 50 is a judgement.

    >>> bad = loss_spike(factor=3.0).rule.fresh()
    >>> [bad(value) for value in [*[1.0] * 10, 5.0]]
    [False, False, False, False, False, False, False, False, False, False, True]
    """
    return OnColumn(
        "loss_spike", "loss", Spike(factor, window), f"loss {{value:.3g}} is over {factor:g} times its median"
    )


def loss_not_finite() -> Tripwire:
    """The loss is NaN or infinite.

    >>> bad = loss_not_finite().rule.fresh()
    >>> [bad(value) for value in (0.3, float("nan"))]
    [False, True]
    """
    return OnColumn("loss_not_finite", "loss", NonFinite(), "loss is {value}")


def loss_constant(steps: int = 50, relative: float = 1e-6) -> Tripwire:
    """The loss does not move at all.

    Args:
      steps: over how many. 50 is a judgement.
      relative: by which share of itself it must move. 1e-6, some ten spacings of float32, is a judgement.

    >>> bad = loss_constant(steps=3).rule.fresh()
    >>> [bad(value) for value in (1.0, 0.5, 0.5, 0.5)]
    [False, False, False, True]
    """
    says = f"loss has not moved for {steps} steps: {{value:.6g}}"
    return OnColumn("loss_constant", "loss", Unchanged(steps, relative), says)


def tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `train_step_monitor` has by default. To add one: `[*tripwires(), loss_spike(factor=3)]`.

    Of several that fire at one step, the summary names the first of this list.

    >>> [wire.name for wire in tripwires()][:3]
    ['nonfinite_activation', 'dead_units', 'nonfinite_gradient']
    """
    return (
        nonfinite_activation(),
        dead_units(),
        nonfinite_gradient(),
        loss_not_finite(),
        layer_apart(),
        gradient_spike(),
        vanishing_gradient(),
        *update_ratio_outside(),
        batch_stats_collapse(),
        loss_spike(),
        loss_constant(),
    )
