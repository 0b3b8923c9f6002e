"""The front door: a monitor of training steps, and a watch on what modules return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxtap import TapEvent
from jaxtap.internal import (
    BY,
    ByIdentity,
    Choices,
    Plan,
    Row,
    Selection,
    Tripwire,
    View,
    check_count,
    chosen,
    deciding,
    documented,
)
from jaxtap_flax import _activations, _hook
from jaxtap_flax._hook import MARK
from jaxtap_flax._loss import HOOK
from jaxtap_flax._measure import COLUMNS, columns_of, gate, of_step
from jaxtap_flax._seen import Activations, Monitor, columns, merges
from jaxtap_flax._tripwires import tripwires as defaults

ACTIVATION_COLUMNS = ("module", "activation_rms", "activation_max", "dead_fraction", "activation_nonfinite")


@documented
def train_step_monitor(
    by: str | None = "layer",
    activations: bool | str | Sequence[str] = False,
    every: int = 1,
    tripwires: bool | Sequence[Tripwire] = True,
    *,
    on_event: Callable[[TapEvent], object] | None = None,
    on_row: Callable[[Row], object] | None = None,
    capacity: int | None = None,
    threads: str = "own",
) -> Monitor:
    """See every training step in a block of code: one row a step.

    A step is a call of linen's `TrainState.apply_gradients`, of `nnx.Optimizer.update`, or, where neither is used, of
    `optax.apply_updates`, in jitted code, in loops, also in functions that were compiled before.

    A row has `step` (the state's own count before the step), `loss` (what `jax.value_and_grad` or
    `nnx.value_and_grad`, called as such in the step, has returned), `learning_rate` (where the optimizer's state holds
    one, as with `optax.inject_hyperparams`), `grad_norm`, `param_norm` (before the update), `update_norm`,
    `update_ratio` and `nonfinite` (elements of the gradient that are not finite), for all parameters and for each
    layer, as `grad_norm/Dense_0`; and `batch_stats_var/BatchNorm_0`, the least variance that each BatchNorm keeps. All
    is computed on the device and sent at once. Norms are those of `optax.tree.norm`.

    Args:
      by: `"layer"` for each module that holds parameters, `"module"` for the outermost ones, `"leaf"` for each
        parameter, None for the whole.
      activations: also look at what modules return in the forward pass of a step: True for all of them, or globs as for
        `watch_activations`. Each is sent on its own.
      every: send every so many steps, by the state's own count. Tripwires on single values are decided on the device,
        and a step in which one fires is sent in any case; those that need others before it see what is sent.
      tripwires: True for `jaxtap_flax.tripwires()`, False for none, or a list.
      {options}

    Returns:
      A context, which is also what it is bound to; or call it with a function to wrap.

    Raises:
      ValueError: for a value that is not allowed.
      TypeError: if `tripwires` is something else.

    >>> import jax, jax.numpy as jnp, optax
    >>> from flax.training.train_state import TrainState
    >>> @jax.jit
    ... def train_step(state, x):
    ...     loss, grads = jax.value_and_grad(lambda p: jnp.sum((p["dense"]["kernel"] - x) ** 2))(state.params)
    ...     return state.apply_gradients(grads=grads), loss
    >>> params = {"dense": {"kernel": jnp.array([3.0, 4.0])}}
    >>> state = TrainState.create(apply_fn=None, params=params, tx=optax.sgd(0.1))
    >>> with train_step_monitor(tripwires=False) as monitor:
    ...     for _ in range(3):
    ...         state, loss = train_step(state, 0.0)
    >>> [(row.step, round(row["loss"], 3), round(row["grad_norm/dense"], 3)) for row in monitor.rows]
    [(0, 25.0, 10.0), (1, 16.0, 8.0), (2, 10.24, 6.4)]
    """
    if by not in BY:
        raise ValueError(f"by must be one of {', '.join(map(repr, BY))}; got {by!r}.")
    check_count("every", every, 1, "every step is 1, every tenth is 10")
    wires = chosen(tripwires, defaults)
    patterns = _patterns(activations)
    if patterns and every > 1:
        raise ValueError("every must be 1 with activations: what modules return is sent at each step.")
    wanted = gate(every, deciding(columns_of(by), wires)) if every > 1 else None
    selection = Selection(function=ByIdentity(of_step(by)), gate=None if wanted is None else ByIdentity(wanted))
    marks: list[tuple[tuple[str, ...], Selection]] = [((MARK,), selection)]
    hooks: list[tuple[str, Any]] = [(HOOK, ())]
    if patterns:
        marks.append((("*",), Selection(function=ByIdentity(_activations.of_output))))
        hooks.append((_activations.HOOK, _activations.Wanted(patterns, in_training=True)))
    plan = Plan(
        name="train_step_monitor",
        view=View(select=None, marks=tuple(marks), hooks=tuple(hooks)),
        columns=columns,
        looked_for="calls of TrainState.apply_gradients, nnx.Optimizer.update and optax.apply_updates",
        patches=lambda: [*_hook.patches(), *_activations.patches()],
        around=_activations.intercepting,
        first=COLUMNS,
        merges=merges,
        between=None if every == 1 else lambda _, step: step is not None and step % every != 0,
    )
    return Monitor(plan, Choices(wires, on_event, on_row, capacity, threads))


@documented
def watch_activations(
    patterns: str | Sequence[str] = "*",
    *,
    backward: bool = False,
    tripwires: bool | Sequence[Tripwire] = True,
    on_event: Callable[[TapEvent], object] | None = None,
    on_row: Callable[[Row], object] | None = None,
    capacity: int | None = None,
    threads: str = "own",
) -> Activations:
    """See what modules return, in a block of code: one row for each call of each module.

    Modules are those of linen and of nnx, unmodified, in jitted code, also in functions compiled before; linen's are
    seen in the thread that opened it alone. A row has `module` (its path in the model), `activation_rms` (root mean
    square), `activation_max` (largest magnitude), `dead_fraction` (share of zeros) and `activation_nonfinite`; `order`
    numbers calls as they were traced, and `step` is the index in the loop around, such as the layer's under `nn.scan`
    over layers.

    Args:
      patterns: globs; a module is seen if its path in the model, the end of it, or its class fits one.
      backward: also `cotangent_rms`, the root mean square of the cotangent of what a module returned, in its own rows.
      tripwires: True for `jaxtap_flax.tripwires()`, of which two look at activations, False for none, or a list.
      {options}

    Raises:
      ValueError: for a value that is not allowed.
      TypeError: if `tripwires` is something else.

    >>> import flax.linen as nn, jax, jax.numpy as jnp
    >>> model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2)])
    >>> variables = model.init(jax.random.key(0), jnp.ones((1, 3)))
    >>> with watch_activations("Dense") as seen:
    ...     y = jax.jit(model.apply)(variables, jnp.zeros((5, 3)))
    >>> [(row["module"], row["activation_rms"], row["dead_fraction"]) for row in seen.rows]
    [('layers_0', 0.0, 1.0), ('layers_2', 0.0, 1.0)]
    """
    globs = _patterns(patterns)
    if not globs:
        raise ValueError(f"patterns must be a glob such as 'Dense_*', or several; got {patterns!r}.")
    selection = Selection(function=ByIdentity(_activations.of_output))
    plan = Plan(
        name="watch_activations",
        view=View(
            select=None,
            ops=(),
            marks=((("*",), selection),),
            backward=Selection(function=ByIdentity(_activations.rms)) if backward else None,
            hooks=((_activations.HOOK, _activations.Wanted(globs)),),
        ),
        columns=columns,
        looked_for=f"calls of linen and nnx modules whose path or class fits {' or '.join(map(repr, globs))}",
        patches=_activations.patches,
        around=_activations.intercepting,
        first=ACTIVATION_COLUMNS,
    )
    return Activations(plan, Choices(chosen(tripwires, defaults), on_event, on_row, capacity, threads))


def _patterns(patterns: Any) -> tuple[str, ...]:
    if isinstance(patterns, bool):
        return ("*",) if patterns else ()
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)
