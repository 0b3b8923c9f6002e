"""The front doors: contexts that see what BlackJAX's samplers do, one row a step and chain."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from jaxtap.internal import ByIdentity, Plan, Row, Selection, Tripwire, View, deciding, documented
from jaxtap_blackjax import _hook_other, _tripwires
from jaxtap_blackjax._columns import WarmupColumns, by_chain, mark_columns
from jaxtap_blackjax._hook import HOOK, Wanted
from jaxtap_blackjax._hook_mcmc import mcmc_patches
from jaxtap_blackjax._measure import OfAdaptation, OfReturned, OfStep
from jaxtap_blackjax._measure_other import (
    OfSearch,
    PathfinderColumns,
    SmcColumns,
    as_marked,
    by_point,
    of_nested,
    of_smc,
    of_vi,
)
from jaxtap_blackjax._options import Chosen, Options, opened, options_of
from jaxtap_blackjax._seen import Seen

SAMPLING = (
    "acceptance_rate",
    "is_divergent",
    "tree_depth",
    "num_integration_steps",
    "energy",
    "logdensity",
    "position_norm",
    "gradient_norm",
)
MATRIX = ("mass_matrix_min", "mass_matrix_max", "mass_matrix_condition")
WARMUP = ("stage", "step_size", "step_size_avg", *SAMPLING, *MATRIX)


@documented
def watch_warmup(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See a warmup adapt: one row a step and chain.

    `with watch_warmup() as warmup:` sees the adaptation loops that run in the block: window adaptation with any metric
    (`window_adaptation`, `window_adaptation_low_rank`, `staged_adaptation`, also of several chains),
    `pathfinder_adaptation`, `meads_adaptation`, `chees_adaptation`, and the tuning of MCLMC and adjusted MCLMC. The
    loops that estimate an effective sample size, and those within a kernel, are left out. `watch_warmup(f)` is `f`,
    watched. The sampler may have been made, and compiled, before.

    A row has, as far as the algorithm does: `stage` of the schedule (`"fast"`, `"slow"`, `"window end"`); `step_size`,
    as it is after the step, and its running average `step_size_avg`; `acceptance_rate`, `is_divergent`, `tree_depth`,
    `num_integration_steps`, `energy` (or `energy_change`) of the transition; `logdensity`, `position_norm` and
    `gradient_norm` of the state it has led to; smallest and largest eigenvalue of the inverse mass matrix and their
    ratio, `mass_matrix_min`, `mass_matrix_max`, `mass_matrix_condition`; `trajectory_length` (ChEES), `mclmc_L`
    (MCLMC). Chains of a `vmap`, and those that an algorithm runs itself, are told apart by `lane`.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `warmup_tripwires()`, False for none, or a list.
      sample_every: send steps 0, k, 2k, ... only; decided on the device. So are tripwires on single values of a
        transition, and a step in which one fires is sent in any case; those that need the steps before it, and those on
        what the loop adapts, see what is sent.
      select: leaves of the loop's state, or fields of the info, that are sent besides, whole: the end of a dotted name
        such as `"inverse_mass_matrix"` or `"wc_state.mean"`, a named selector of this package, or a list.
      hooks: True reads the info where a kernel builds it, in a copy of the step: the work of each step is done
        twice. False reads it from what the loop returns, and nothing runs twice. BlackJAX's warmups return it by
        default, but not where an `adaptation_info_fn` leaves it out, nor does unadjusted MCLMC; and the limit of the
        tree depth is not known then.
      {options}

    Returns:
      A context, or the wrapped function. What the context is bound to has `df()`, `rows`, `trips`, `summary()`,
      `plot()` and `to_arviz()`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> adaptation = blackjax.window_adaptation(blackjax.hmc, lambda x: -x @ x / 2, num_integration_steps=3)
    >>> with watch_warmup(tripwires=False) as warmup:
    ...     (state, parameters), info = adaptation.run(jax.random.key(0), jnp.ones(2), 30)
    >>> rows = warmup.rows
    >>> len(rows), [row.step for row in rows if row["stage"] == "window end"]
    (30, [26])
    >>> bool(rows[-1]["step_size_avg"] == parameters["step_size"])
    True
    """
    own = options_of("watch_warmup", options, _tripwires.warmup_tripwires, without=())
    plan = Plan(
        name="watch_warmup",
        view=_of_warmup(own),
        columns=WarmupColumns(own.sample_every),
        looked_for=(
            "a loop whose state has a step size and what adapts it, as in window_adaptation(...).run, and for steps of "
            "kernels in it"
        ),
        patches=mcmc_patches if own.hooks else tuple,
        events_per_row=2,
        first=WARMUP,
        split=by_chain,
        between=_between(own),
    )
    return opened(Seen, plan, own, f)


def watch_sampling(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See chains being sampled: one row a step and chain.

    It sees the step of every MCMC kernel, wherever it runs: in `run_inference_algorithm`, in a `lax.scan` of your own,
    also if that drops the info, in a Python loop over a jitted step (there, `step` is counted on the host), and under
    `vmap`. The columns are those of `watch_warmup` that a transition has; what a kernel does not tell is NaN.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `sampling_tripwires()`, False for none, or a list.
      sample_every: as in `watch_warmup`.
      select: fields of the info or the state that are sent besides, whole, such as `"proposal.position"`.
      on_event: as in `watch_warmup`; so are `on_row`, `capacity` and `threads`.

    Returns:
      As in `watch_warmup`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> hmc = blackjax.hmc(lambda x: -x @ x / 2, 0.5, jnp.ones(2), 4)
    >>> def positions(state, key):
    ...     state, _ = hmc.step(key, state)
    ...     return state, state.position
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> with watch_sampling() as seen:
    ...     _, draws = jax.lax.scan(positions, hmc.init(jnp.ones(2)), keys)
    >>> [(row.step, row["num_integration_steps"], row["is_divergent"]) for row in seen.rows][:2]
    [(0, 4, False), (1, 4, False)]
    """
    own = options_of("watch_sampling", options, _tripwires.sampling_tripwires, without=("hooks",))
    plan = Plan(
        name="watch_sampling",
        view=_view(own, "mcmc", _of_step(own.extra)),
        columns=mark_columns,
        looked_for="steps of BlackJAX's MCMC kernels, by what they build their info and their state with",
        patches=mcmc_patches,
        first=SAMPLING,
        between=_between(own),
    )
    return opened(Seen, plan, own, f)


def watch_trajectory(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See inside NUTS's transitions: one row a doubling of the tree, and chain.

    A row has the `depth` that the doubling leads to, its `direction` (1 or -1), the `energy` of the state that it
    proposes and the `initial_energy` of the transition, `num_states` in the new half, and whether it `is_divergent`,
    `is_turning`, or the new half alone is (`subtree_is_turning`). `outer` is the transition, `lane` the chain.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: a list, or False; there are no defaults.
      sample_every: as in `watch_warmup`; so are `on_event`, `on_row`, `capacity` and `threads`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> nuts = blackjax.nuts(lambda x: -x @ x / 2, 0.5, jnp.ones(2))
    >>> with watch_trajectory() as tree:
    ...     _, info = nuts.step(jax.random.key(0), nuts.init(jnp.ones(2)))
    >>> tree.rows[-1]["depth"] == int(info.num_trajectory_expansions)
    True
    """
    first = ("depth", "direction", "energy", "initial_energy", "num_states", "is_divergent", "is_turning")
    return _other(f, options, "trajectory", _AS_MARKED, first, "expansions of NUTS's tree", tuple)


def watch_smc(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See sequential Monte Carlo advance: one row a step of the sampler, not of its inner kernels.

    A row has the `tempering_parameter` (of partial posteriors, `data_share`) and its `tempering_advance`, the effective
    sample size of the weights as `ess` and as `ess_share` of the particles, the mean `acceptance_rate` of the inner
    kernels, `log_evidence_increment`, and their sum `log_evidence`.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `smc_tripwires()`, False for none, or a list.
      sample_every: as in `watch_warmup`; so are `on_event`, `on_row`, `capacity` and `threads`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> from blackjax.smc import resampling
    >>> smc = blackjax.adaptive_tempered_smc(
    ...     lambda x: -x @ x / 2, lambda x: -4.0 * x @ x, blackjax.hmc.build_kernel(), blackjax.hmc.init,
    ...     {"step_size": jnp.array([0.1]), "inverse_mass_matrix": jnp.ones((1, 2)),
    ...      "num_integration_steps": jnp.array([3])}, resampling.systematic, 0.5, num_mcmc_steps=2)
    >>> state = smc.init(jax.random.normal(jax.random.key(0), (50, 2)))
    >>> with watch_smc() as seen:
    ...     state, info = jax.jit(smc.step)(jax.random.key(1), state)
    >>> (row,) = seen.rows
    >>> 0.0 < row["tempering_parameter"] < 1.0, 20.0 < row["ess"] < 30.0
    (True, True)
    """
    first = ("tempering_parameter", "ess", "acceptance_rate", "log_evidence_increment", "log_evidence")
    looked_for = "steps of tempered, adaptive, persistent or partial-posteriors SMC"
    return _other(f, options, "smc", _OF_SMC, first, looked_for, _tripwires.smc_tripwires, SmcColumns())


def watch_vi(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See variational inference converge: one row a step of `meanfield_vi` or `fullrank_vi`.

    A row has the `elbo` (as BlackJAX's info has it), the norm of the step of the variational parameters, `step_norm`,
    the norm of the parameters after it, and the ratio of the two, `step_ratio`.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `vi_tripwires()`, False for none, or a list.
      sample_every: as in `watch_warmup`; so are `on_event`, `on_row`, `capacity` and `threads`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp, optax
    >>> vi = blackjax.meanfield_vi(lambda x: -jnp.sum(x**2) / 2, optax.sgd(1e-2), 8)
    >>> state = vi.init(jnp.ones(2))
    >>> with watch_vi() as seen:
    ...     for i in range(3):
    ...         state, info = jax.jit(vi.step)(jax.random.key(i), state)
    >>> [row.step for row in seen.rows], bool(seen.rows[-1]["elbo"] == info.elbo)
    ([0, 1, 2], True)
    """
    first = ("elbo", "step_norm", "parameter_norm", "step_ratio")
    return _other(f, options, "vi", _OF_VI, first, "steps of meanfield_vi and fullrank_vi", _tripwires.vi_tripwires)


def watch_nested(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See nested sampling shrink: one row a step of `nss` and its kin.

    A row has the log evidence so far, `logz`, and what the live points add to it, `logz_live`; `remaining`, the
    difference of the two, which the usual stopping rule looks at; the log prior volume `logx`; `num_live`;
    `loglikelihood_min` of the live points; mean and largest number of shrinks of the inner slices, `num_shrink` and
    `num_shrink_max`, and their `acceptance_rate`.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `nested_tripwires()`, False for none, or a list.
      sample_every: as in `watch_warmup`; so are `on_event`, `on_row`, `capacity` and `threads`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> ns = blackjax.nss(lambda x: -x @ x / 2, lambda x: -8.0 * x @ x, 5, num_delete=1)
    >>> state = ns.init(jax.random.normal(jax.random.key(0), (20, 2)))
    >>> with watch_nested() as seen:
    ...     state, info = jax.jit(ns.step)(jax.random.key(1), state)
    >>> seen.rows[0]["num_live"]
    20
    """
    first = ("logz", "logz_live", "remaining", "logx", "num_live", "num_shrink")
    return _other(
        f, options, "nested", _OF_NESTED, first, "steps of adaptive nested samplers", _tripwires.nested_tripwires
    )


def watch_pathfinder(f: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """See Pathfinder's optimisation: one row a step of L-BFGS, and one for the ELBO of each point of its path.

    Rows of the first kind have `value` (minus the log-density), `learning_rate`, `linesearch_steps`, `decrease_error`
    and `curvature_error` of the line search; those that do nothing because L-BFGS has converged are left out. Rows of
    the second have `elbo`. Several paths are told apart by `lane`.

    Args:
      f: a function to wrap; None for the block form.
      tripwires: True for `pathfinder_tripwires()`, False for none, or a list.
      sample_every: as in `watch_warmup`; so are `on_event`, `on_row`, `capacity` and `threads`.

    Raises:
      ValueError: if `sample_every` or `capacity` is too small.
      TypeError: for an argument that is not known, or of the wrong type.

    >>> import blackjax, jax, jax.numpy as jnp
    >>> with watch_pathfinder() as seen:
    ...     state, info = blackjax.vi.pathfinder.approximate(
    ...         jax.random.key(0), lambda x: -jnp.sum(x**2) / 2, jnp.ones(2), num_samples=8, maxiter=4)
    >>> "value" in seen.rows[0].values, any("elbo" in row.values for row in seen.rows)
    (True, True)
    """
    own = options_of("watch_pathfinder", options, _tripwires.pathfinder_tripwires)
    plan = Plan(
        name="watch_pathfinder",
        view=_view(own, "pathfinder", _AS_MARKED, _of_search()),
        columns=PathfinderColumns(),
        looked_for="the L-BFGS loop of blackjax.pathfinder, and the ELBOs of its path",
        patches=_hook_other.patches("pathfinder"),
        first=("value", "learning_rate", "linesearch_steps", "decrease_error", "elbo"),
        split=by_point,
        between=_between(own),
    )
    return opened(Seen, plan, own, f)


def _other(
    f: Callable[..., Any] | None,
    options: Any,
    kind: str,
    marked: Selection,
    first: tuple[str, ...],
    looked_for: str,
    defaults: Callable[[], Sequence[Tripwire]],
    columns: Any = mark_columns,
) -> Any:
    """A watch on marks alone."""
    own = options_of(f"watch_{kind}", options, defaults)
    plan = Plan(
        name=f"watch_{kind}",
        view=_view(own, kind, marked),
        columns=columns,
        looked_for=looked_for,
        patches=_hook_other.patches(kind),
        first=first,
        between=_between(own),
    )
    return opened(Seen, plan, own, f)


# A view is what JAX's caches go by: two contexts with the same options share what has been compiled.


@functools.cache
def _of_step(extra: tuple[str, ...]) -> Selection:
    return Selection(function=ByIdentity(OfStep(extra)))


@functools.cache
def _of_adaptation(extra: tuple[str, ...], every: bool) -> Selection:
    return _of_loop(OfAdaptation(extra, every))


@functools.cache
def _of_returned(extra: tuple[str, ...]) -> Selection:
    return _of_loop(OfReturned(extra))


def _of_warmup(own: Chosen) -> View:
    carry = _of_adaptation(own.extra, own.sample_every > 1)
    if own.hooks:
        return _view(own, "mcmc", _of_step(own.extra), carry)
    return View(select=carry, outputs=_of_returned(own.extra), sample_every=own.sample_every)


@functools.cache
def _of_search() -> Selection:
    return _of_loop(OfSearch())


def _of_loop(selector: OfAdaptation | OfReturned | OfSearch) -> Selection:
    function, finder = ByIdentity(selector), ByIdentity(selector.positions)
    return Selection(names=selector.leaf_names, function=function, finder=finder)


_AS_MARKED = Selection(function=ByIdentity(as_marked))
_OF_SMC = Selection(function=ByIdentity(of_smc))
_OF_VI = Selection(function=ByIdentity(of_vi))
_OF_NESTED = Selection(function=ByIdentity(of_nested))


def _view(own: Chosen, kind: str, marked: Selection, carry: Selection | None = None) -> View:
    if own.sample_every > 1 and own.tripwires:
        assert marked.function is not None
        marked = dataclasses.replace(marked, between=ByIdentity(deciding(marked.function.value, own.tripwires)))
    return View(
        select=carry,
        marks=((("*",), marked),),
        sample_every=own.sample_every,
        hooks=((HOOK, Wanted(kind, own.extra)),),
    )


def _between(own: Chosen) -> Callable[[Row, int | None], bool] | None:
    """Whether a row is of a step that `sample_every` leaves out; None where it leaves out none."""
    every = own.sample_every
    return None if every == 1 else lambda row, _: row.is_in_loop and row.index % every != 0
