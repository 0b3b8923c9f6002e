"""What goes wrong in optimizers: tripwires, each with a default and where that comes from."""

from __future__ import annotations

from typing import Any

from jaxtap.internal import NonFinite, Often, OnColumn, OnRow, Outside, Spike, Tripwire, Unchanged


def update_skipped() -> Tripwire:
    """`optax.apply_if_finite` has left out a step whose gradient is not finite. Any is told of, as Optax has it.

    >>> import jax.numpy as jnp, optax
    >>> tx, params = optax.apply_if_finite(optax.sgd(0.1), 3), jnp.ones(2)
    >>> with watch_updates(tripwires=[update_skipped()]) as seen:
    ...     updates, state = tx.update(jnp.full(2, jnp.nan), tx.init(params), params)
    [tap] FAIL update[0] 0/?: gradient is not finite: apply_if_finite skips the update (1 in a row)
    """
    says = "gradient is not finite: apply_if_finite skips the update ({value:.0f} in a row)"
    return OnColumn("update_skipped", "notfinite_count*", Outside(high=0), says)


def bad_update_accepted() -> Tripwire:
    """`optax.apply_if_finite` is about to give up: one more bad gradient, and it accepts the update.

    Its documentation: "after that many ignored updates, the optimizer will give up and accept". The limit is the
    `max_consecutive_errors` that it was built with.

    >>> bad_update_accepted().bad({"notfinite_count": 3, "max_consecutive_errors": 3})
    True
    """

    def bad(row: Any) -> Any:
        return row["notfinite_count"] >= row["max_consecutive_errors"]

    says = (
        "{row[notfinite_count]} updates in a row were not finite: apply_if_finite accepts the next "
        "(limit {row[max_consecutive_errors]:.0f})"
    )
    return OnRow("bad_update_accepted", ("notfinite_count", "max_consecutive_errors"), bad, says)


def clip_saturated(ratio: float = 0.999, window: int = 100, share: float = 0.95) -> Tripwire:
    """A clip is at work nearly always: it sets the size of the steps, not the gradient.

    Args:
      ratio: norm after over norm before the clip, below which it was at work; 0.999 leaves rounding aside.
      window: over how many steps. 100 is a judgement.
      share: in how many of them. 0.95 is a judgement.

    >>> bad = clip_saturated(window=3).rule.fresh()
    >>> [bad(value) for value in (1.0, 0.1, 0.1, 0.1)]
    [False, False, False, True]
    """
    rule = Often(Outside(low=ratio), window, share)
    says = f"clip active in {share:.0%} of the last {window} steps (norm cut to {{value:.2g}} of itself)"
    return OnColumn("clip_saturated", "clip_ratio", rule, says)


def learning_rate_died(floor: float = 1e-8, at_least: int = 2) -> Tripwire:
    """The learning rate is zero, or next to it.

    Args:
      floor: below which it is. 1e-8 is a judgement: a float32 weight of 1 does not change by 1e-8.
      at_least: in how many steps, one after the other. A schedule that warms up is zero once, at its first step.

    >>> bad = learning_rate_died().rule.fresh()
    >>> [bad(value) for value in (1e-3, 0.0, 0.0)]
    [False, False, True]
    """
    rule = Often(Outside(low=floor), at_least)
    return OnColumn("learning_rate_died", "learning_rate*", rule, f"learning rate {{value:.2g}} (< {floor:.0e})")


def plateau_floor(floor: float = 1e-3) -> Tripwire:
    """`reduce_on_plateau` has scaled the updates down as far as it may.

    Args:
      floor: the scale at which that is so if the `min_scale` that it was built with is less, as zero, Optax's default.
        1e-3, three tenfold cuts, is a judgement.

    >>> plateau_floor().bad({"plateau_scale": 1e-3, "plateau_min_scale": 0.0})
    True
    """

    def bad(row: Any) -> Any:
        # A scale that is multiplied down to its floor may stop an ulp above.
        return row["plateau_scale"] <= max(row["plateau_min_scale"], floor) * (1 + 1e-6)

    says = "reduce_on_plateau is at its floor: scale {row[plateau_scale]:.2g}"
    return OnRow("plateau_floor", ("plateau_scale", "plateau_min_scale"), bad, says)


def linesearch_at_limit() -> Tripwire:
    """A line search has used all its steps. The limit is that which it was built with.

    >>> linesearch_at_limit().bad({"linesearch_steps": 20, "max_linesearch_steps": 20})
    True
    """

    def bad(row: Any) -> Any:
        return row["linesearch_steps"] >= row["max_linesearch_steps"]

    says = "line search took all its {row[max_linesearch_steps]:.0f} steps (decrease error {row[decrease_error]:.2g})"
    return OnRow("linesearch_at_limit", ("linesearch_steps", "max_linesearch_steps"), bad, says)


def linesearch_failed(tolerance: float = 0.0) -> Tripwire:
    """A line search has found no step that decreases the value enough.

    Args:
      tolerance: of the error in the condition of sufficient decrease; Optax's own default is 0.

    >>> bad = linesearch_failed().rule.fresh()
    >>> [bad(value) for value in (0.0, 0.1)]
    [False, True]
    """
    says = f"line search found no sufficient decrease (error {{value:.2g}} > {tolerance:g})"
    return OnColumn("linesearch_failed", "decrease_error*", Outside(high=tolerance, nan=True), says)


def second_moment(factor: float = 1e4, window: int = 50) -> tuple[Tripwire, Tripwire]:
    """The second moment is not finite, or grows out of all proportion: a large gradient stays for `1/(1-b2)` steps.

    Args:
      factor: times the median of its largest element over the window. 1e4, a gradient a hundred times the usual that
        weighs in whole, is a judgement.
      window: over how many steps. 50 is a judgement.

    >>> not_finite, explodes = second_moment()
    >>> not_finite.rule.fresh()(float("inf")), explodes.rule.fresh()(1.0)
    (True, False)
    """
    exploding = Spike(factor, window)
    return (
        OnColumn("second_moment_not_finite", "nu_max*", NonFinite(), "second moment is not finite: {value}"),
        OnColumn(
            "second_moment_explodes",
            "nu_max*",
            exploding,
            f"second moment {{value:.2g}} is over {factor:.0e} times its median",
        ),
    )


def never_emits(window: int = 200) -> Tripwire:
    """`MultiSteps` accumulates and never emits: its `gradient_step` stands still, as when every mini-batch is skipped.

    Args:
      window: how many mini-steps that takes. 200 is a judgement: more than the usual accumulation over 2 to 64.

    >>> bad = never_emits(window=3).rule.fresh()
    >>> [bad(value) for value in (0, 1, 1, 1)]
    [False, False, False, True]
    """
    says = f"MultiSteps has emitted nothing in {window} mini-steps (gradient step {{value:.0f}})"
    return OnColumn("never_emits", "gradient_step", Unchanged(window), says)


def tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_updates` has by default. To tune one: `[*tripwires(), clip_saturated(share=0.5)]`.

    >>> [wire.name for wire in tripwires()][:3]
    ['update_skipped', 'bad_update_accepted', 'clip_saturated']
    """
    return (
        update_skipped(),
        bad_update_accepted(),
        clip_saturated(),
        learning_rate_died(),
        plateau_floor(),
        linesearch_at_limit(),
        linesearch_failed(),
        *second_moment(),
        never_emits(),
    )
