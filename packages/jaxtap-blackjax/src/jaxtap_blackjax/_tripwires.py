"""What goes wrong in samplers: tripwires, each with a default and where that comes from."""

from __future__ import annotations

from jaxtap.internal import NonFinite, Often, OnColumn, Outside, Tripwire, Unchanged
from jaxtap_blackjax._energy import EnergyFraction
from jaxtap_blackjax._rules import Apart, MeanOutside, Once, Stalled

# --- Chains --------------------------------------------------------------------------------------------------


def divergence() -> Tripwire:
    """A transition diverged, after warmup. The first of each chain is told of; `summary()` counts them.

    Any is, as Stan has it: "even a small number of divergences after warmup cannot be safely ignored"
    (Betancourt, *A Conceptual Introduction to Hamiltonian Monte Carlo*, 2017, section 6.2). What counts as one is the
    kernel's `divergence_threshold`, 1000 by default.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> hmc = blackjax.hmc(lambda x: -1e4 * x @ x, 1.0, jnp.ones(2), 3)
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> with watch_sampling(tripwires=[divergence()]) as seen:
    ...     out = jax.lax.scan(lambda s, k: (hmc.step(k, s)[0], None), hmc.init(jnp.ones(2)), keys)
    [tap] FAIL scan[0] 0/5: transition diverged
    >>> seen.summary()["divergences"]
    5
    """
    return Once(OnColumn("divergence", "is_divergent", Outside(high=0.5), "transition diverged"))


def divergence_rate(rate: float = 0.02, window: int = 100) -> Tripwire:
    """Many transitions diverge.

    Args:
      rate: share of a window from which on it is told; 0.02 is `rate_threshold` of
        `blackjax.diagnostics.divergence_concentration`.
      window: in steps. 100 is a judgement: two divergences in it.

    >>> bad = divergence_rate(rate=0.5, window=4).rule.fresh()
    >>> [bad(value) for value in (1, 0, 0, 0, 1, 1)]
    [False, False, False, False, False, True]
    """
    says = f"{rate:.0%} or more of the last {window} transitions diverged"
    return OnColumn("divergence_rate", "is_divergent", Often(Outside(high=0.5), window, rate), says)


def tree_depth_saturated(in_a_row: int = 10, share: float = 0.05, window: int = 100) -> tuple[Tripwire, Tripwire]:
    """NUTS's trees are as deep as they may be: it stops before it turns. The limit is that of the running kernel.

    Args:
      in_a_row: so many transitions one after the other. 10 is a judgement.
      share: or so many of a window. 0.05 is a judgement; PyMC warns from there on.
      window: in steps.

    >>> in_a_row, often = tree_depth_saturated(in_a_row=3)
    >>> bad = in_a_row.rule.fresh()
    >>> [bad(at_limit) for at_limit in (True, True, False, True, True, True)]
    [False, False, False, False, False, True]
    """
    says = "tree depth {row[tree_depth]} is at its limit {row[tree_depth_limit]}"
    column, bad = "tree_depth_saturated", Outside(high=0.5)
    often = f"trees reach their limit of depth {{row[tree_depth_limit]}} in {share:.0%} or more of {window} transitions"
    return (
        OnColumn("tree_depth_saturated", column, Often(bad, in_a_row), f"{says}, {in_a_row} times in a row"),
        OnColumn("tree_depth_often_saturated", column, Often(bad, window, share), often),
    )


def step_size_collapsed(low: float = 1e-8, high: float = 1e3) -> tuple[Tripwire, Tripwire]:
    """The step size is next to nothing, or out of all bounds.

    Args:
      low: below which it has collapsed. 1e-8 is a judgement: a float32 position of 1 does not move by it.
      high: above which it has exploded. 1e3 is a judgement: that many times the scale that the metric makes one.

    >>> collapsed, exploded = step_size_collapsed()
    >>> collapsed.rule.fresh()(1.2e-9), exploded.rule.fresh()(0.5)
    (True, False)
    """
    return (
        OnColumn(
            "step_size_collapsed", "step_size", Outside(low=low), f"step size {{value:.1e}} collapsed (< {low:.0e})"
        ),
        OnColumn(
            "step_size_exploded",
            "step_size",
            Outside(high=high, nan=True),
            f"step size {{value:.1e}} exploded (> {high:.0e})",
        ),
    )


def acceptance_off_target(target: float | None = None, tolerance: float = 0.2, window: int = 100) -> Tripwire:
    """The acceptance rate is far from what dual averaging aims at.

    Args:
      target: None for what BlackJAX aims at by default: 0.8 in window adaptation, 0.651 in ChEES.
      tolerance: how far the mean over a window may be off. 0.2 is a judgement.
      window: in steps. 100 is a judgement: what dual averaging takes to settle.

    >>> acceptance_off_target(target=0.65, tolerance=0.1).name
    'acceptance_off_target'
    """
    return MeanOutside("acceptance_off_target", "acceptance_rate", target, tolerance, window)


def non_finite() -> tuple[Tripwire, Tripwire]:
    """The log-density of a chain, or its gradient, is NaN or infinite.

    >>> of_density, of_gradient = non_finite()
    >>> of_density.rule.fresh()(float("-inf")), of_gradient.rule.fresh()(1e30)
    (True, False)
    """
    return (
        OnColumn("logdensity_not_finite", "logdensity", NonFinite(), "logdensity {value}"),
        OnColumn("gradient_not_finite", "gradient_norm", NonFinite(), "gradient of the logdensity {value}"),
    )


def frozen(window: int = 50) -> Tripwire:
    """A chain does not move.

    Args:
      window: steps for which the norm of its position stays the same to the last bit. 50 is a judgement: at the
        lowest acceptance rate that is of use, 0.1, it happens by chance once in 200 windows.

    >>> bad = frozen(window=3).rule.fresh()
    >>> [bad(value) for value in (1.0, 2.0, 2.0, 2.0)]
    [False, False, False, True]
    """
    return OnColumn("frozen", "position_norm", Unchanged(window), f"position has not moved for {window} steps")


def mass_matrix_degenerate(condition: float = 1e10) -> Tripwire:
    """The inverse mass matrix is singular, or next to it.

    Args:
      condition: largest over smallest eigenvalue, from which on it is told. 1e10 is a judgement: beyond what float32
        can hold of a dense matrix.

    >>> bad = mass_matrix_degenerate().rule.fresh()
    >>> [bad(value) for value in (10.0, 1e12)]
    [False, True]
    """
    rule = Outside(low=0.0, high=condition)
    says = f"mass matrix is degenerate: condition number {{value:.1e}} (> {condition:.0e})"
    return OnColumn("mass_matrix_degenerate", "mass_matrix_condition", rule, says)


def mass_matrix_unmoved(after: float = 0.75) -> Tripwire:
    """The inverse mass matrix has never changed, though the warmup is well under way.

    Args:
      after: the share of the steps by which it should have. 0.75 is a judgement: in Stan's schedule, which BlackJAX
        has, the first window ends at step 100 of 1,000, and of a short warmup the only one at 0.9.

    >>> mass_matrix_unmoved(after=0.5).name
    'mass_matrix_unmoved'
    """
    return Stalled("mass_matrix_unmoved", "mass_matrix_max", after)


def chain_apart(factor: float = 1e3, spread: float = 10.0, at_least: int = 4, steps: int = 20) -> Tripwire:
    """One chain is apart from the others: its step size by orders of magnitude, or its log-density by many spreads.

    Args:
      factor: times, or one such part of, the median step size of the chains. 1e3 is a judgement.
      spread: median absolute deviations of the chains' log-densities below their median. 10 is a judgement.
      at_least: chains that it takes to tell.
      steps: how many steps in a row. 20 is a judgement: longer than the excursion of a healthy chain.

    >>> chain_apart(factor=100.0, steps=5).name
    'chain_apart'
    """
    return Apart("chain_apart", factor, spread, at_least, steps)


def energy_fraction(threshold: float = 0.3, window: int = 200) -> Tripwire:
    """The energy moves little from one transition to the next: momenta do not reach the tails (E-BFMI).

    Args:
      threshold: 0.3, as in Stan and ArviZ (Betancourt, *Diagnosing Suboptimal Cotangent Disintegrations in Hamiltonian
        Monte Carlo*, 2016).
      window: in steps. 200 is a judgement: the estimate of fewer is too rough.

    >>> bad = energy_fraction(window=4).rule.fresh()
    >>> [bad(energy) for energy in (1.0, 1.1, 5.0, 5.1)]
    [False, False, False, False]
    """
    rule = EnergyFraction(threshold, window)
    return OnColumn("energy_fraction", "energy", rule, f"E-BFMI of the last {window} steps is below {threshold:g}")


def warmup_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_warmup` has by default. Single divergences are no fault in a warmup: its rate is.

    >>> [wire.name for wire in warmup_tripwires()][0]
    'divergence_rate'
    """
    return (
        divergence_rate(rate=0.2),
        *tree_depth_saturated(),
        *step_size_collapsed(),
        acceptance_off_target(),
        *non_finite(),
        frozen(),
        mass_matrix_degenerate(),
        mass_matrix_unmoved(),
        chain_apart(),
    )


def sampling_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_sampling` has by default. To tune one: `[*sampling_tripwires(), frozen(window=20)]`.

    >>> [wire.name for wire in sampling_tripwires()][0]
    'divergence'
    """
    return (
        divergence(),
        divergence_rate(),
        *tree_depth_saturated(),
        *non_finite(),
        frozen(),
        chain_apart(),
        energy_fraction(),
    )


# --- Sequential Monte Carlo, variational inference, nested sampling ------------------------------------------


def smc_degenerate(share: float = 0.1) -> Tripwire:
    """Few particles carry all the weight.

    Args:
      share: of the particles that the effective sample size falls below. 0.1 is a judgement; a `target_ess` of 0.5 is
        usual.

    >>> bad = smc_degenerate().rule.fresh()
    >>> [bad(value) for value in (0.5, 0.05)]
    [False, True]
    """
    says = f"effective sample size is {{value:.1%}} of the particles (< {share:.0%})"
    return OnColumn("smc_degenerate", "ess_share", Outside(low=share), says)


def tempering_stalled(advance: float = 1e-4) -> Tripwire:
    """The tempering parameter hardly advances.

    Args:
      advance: of the parameter in one step. 1e-4 is a judgement: at that pace 10,000 steps are left.

    >>> bad = tempering_stalled().rule.fresh()
    >>> [bad(value) for value in (0.2, 1e-6)]
    [False, True]
    """
    says = f"tempering parameter advanced by {{value:.1e}} (< {advance:.0e})"
    return OnColumn("tempering_stalled", "tempering_advance", Outside(low=advance), says)


def smc_rejecting(rate: float = 0.1) -> Tripwire:
    """The inner kernels of SMC accept next to nothing.

    Args:
      rate: mean acceptance rate below which it is told. 0.1 is a judgement.

    >>> bad = smc_rejecting().rule.fresh()
    >>> [bad(value) for value in (0.5, 0.01)]
    [False, True]
    """
    says = f"inner kernels accept {{value:.1%}} (< {rate:.0%})"
    return OnColumn("smc_rejecting", "acceptance_rate", Outside(low=rate, nan=True), says)


def elbo_not_finite() -> Tripwire:
    """The evidence lower bound is NaN or infinite.

    >>> bad = elbo_not_finite().rule.fresh()
    >>> [bad(value) for value in (-3.0, float("nan"))]
    [False, True]
    """
    return OnColumn("elbo_not_finite", "elbo", NonFinite(), "ELBO {value}")


def line_search_failed() -> Tripwire:
    """L-BFGS's line search has found no step that decreases the objective enough.

    By Optax's own `decrease_error`, which is 0 where the condition holds.

    >>> bad = line_search_failed().rule.fresh()
    >>> [bad(value) for value in (0.0, 0.2)]
    [False, True]
    """
    says = "line search found no sufficient decrease (error {value:.2g})"
    return OnColumn("line_search_failed", "decrease_error", Outside(high=0.0, nan=True), says)


def shrinks_exhausted(limit: int = 100) -> Tripwire:
    """A slice was shrunk as often as it may be: the particle stays where it was.

    Args:
      limit: `max_shrinkage`; 100 is the default of `blackjax.nss`.

    >>> bad = shrinks_exhausted().rule.fresh()
    >>> [bad(value) for value in (5, 100)]
    [False, True]
    """
    says = f"slice shrunk {{value:.0f}} times (limit {limit})"
    return OnColumn("shrinks_exhausted", "num_shrink_max", Outside(high=limit - 0.5), says)


def smc_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_smc` has by default.

    >>> [wire.name for wire in smc_tripwires()]
    ['smc_degenerate', 'tempering_stalled', 'smc_rejecting']
    """
    return (smc_degenerate(), tempering_stalled(), smc_rejecting())


def vi_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_vi` has by default.

    >>> [wire.name for wire in vi_tripwires()]
    ['elbo_not_finite']
    """
    return (elbo_not_finite(),)


def pathfinder_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_pathfinder` has by default.

    >>> [wire.name for wire in pathfinder_tripwires()]
    ['line_search_failed']
    """
    return (line_search_failed(),)


def nested_tripwires() -> tuple[Tripwire, ...]:
    """The tripwires that `watch_nested` has by default.

    >>> [wire.name for wire in nested_tripwires()]
    ['shrinks_exhausted']
    """
    return (shrinks_exhausted(),)
