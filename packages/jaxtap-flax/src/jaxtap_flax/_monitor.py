"""The front door: a monitor of training steps, and a watch on what modules return."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxtap import TapEvent
from jaxtap.internal import (
    BY,
    ByIdentity,
    Choices,
    Plan,
    Row,
    Selection,
    Trip,
    Tripwire,
    View,
    Watch,
    check_count,
    chosen,
    table,
)
from jaxtap_flax import _activations, _hook
from jaxtap_flax._hook import MARK
from jaxtap_flax._loss import HOOK
from jaxtap_flax._measure import COLUMNS, gate, of_step, unpacked
from jaxtap_flax._summary import Summary, summary
from jaxtap_flax._tripwires import tripwires as defaults

if TYPE_CHECKING:
    import pandas as pd

ACTIVATION_COLUMNS = ("module", "activation_rms", "activation_max", "dead_fraction", "activation_nonfinite")
_TO_STEP = ("activation_rms", "activation_max", "dead_fraction", "activation_nonfinite", "cotangent_rms")


@functools.lru_cache(maxsize=1024)
def _module(path: str) -> str:
    """The path of a module, from the address of what it has returned; of a step, nothing."""
    name = path.rpartition("/")[2].rpartition("[")[0]
    return "" if name == MARK else name.replace(".", "/")


def _columns(event: TapEvent) -> dict[str, Any] | None:
    module = _module(event.path)
    if event.kind == "backward":
        return {"module": module, "cotangent_rms": event.value}
    if event.kind != "mark":
        return None
    return {"module": module, **event.value} if module else unpacked(event.value)


def _merges(row: Row, values: Mapping[str, Any]) -> bool:
    """Whether another device has made the same step, with the loss of its part of the batch: the row has the mean."""
    loss, own = values.get("loss"), row.values.get("loss")
    if values.get("step", row.step) != row.step:
        return False
    others = (name for name in values if name not in ("loss", "step"))
    if any(row[name] != values[name] and row[name] == row[name] for name in others):
        return False
    if loss is not None and own is not None:
        row.values["loss"] = own + (loss - own) / (len(row.devices) + 1)
    return True


class Monitor(Watch):
    """What `train_step_monitor` gives: a context, and what it has seen."""

    @property
    def rows(self) -> list[Row]:
        """One row a step, oldest first."""
        return [row for row in super().rows if "module" not in row.values]

    @property
    def activations(self) -> list[Row]:
        """One row for each call of a module, oldest first; with `activations`."""
        return in_order(row for row in super().rows if "module" in row.values)

    def df(self) -> pd.DataFrame:
        """One row a step: `path`, `step`, `lane`, `outer`, `call`, then what was seen; NaN where that was nothing.

        With `activations`, what the modules returned in a step is in its row, as `activation_rms/Dense_0`.

        Raises:
          ImportError: without pandas.
        """
        return table(self._joined(), COLUMNS)

    def _joined(self) -> list[Row]:
        """The rows of steps, with what was seen of modules in the same step."""
        by_step: dict[Any, dict[str, Any]] = {}
        for row in self.activations:
            module = row.values["module"] + ("" if row.point.endswith("[0]") else f"[{row.point.rpartition('[')[2]}")
            found = {f"{name}/{module}": row.values[name] for name in _TO_STEP if name in row.values}
            by_step.setdefault(_same_step(row), {}).update(found)
        return [dataclasses.replace(row, values=row.values | by_step.get(_same_step(row), {})) for row in self.rows]

    def summary(self) -> Summary:
        """What went wrong first, in which layer, and what came before; otherwise how training went."""
        order = [wire.name for wire in self.tripwires]
        return summary(self.rows, sorted(self.trips, key=lambda trip: _first(trip, order)))

    def plot(self) -> Any:
        """A figure: the loss, norms, and a heat map of the gradient by layer. Needs matplotlib.

        Raises:
          ImportError: without matplotlib.
        """
        from jaxtap_flax._plot import figure  # noqa: PLC0415 - an extra

        return figure(self.rows, self.trips)


def _first(trip: Trip, order: Sequence[str]) -> tuple[int, int, int]:
    """Of tripwires that have fired, which counts as the first."""
    return trip.row.step, order.index(trip.tripwire), trip.row.values.get("order", 0)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows of modules in the order in which those were called; host calls come in any."""
    return sorted(rows, key=lambda row: (row.call, row.outer, row.index, row.values.get("order", 0)))


class Activations(Watch):
    """What `watch_activations` gives: a context, and what it has seen."""

    @property
    def rows(self) -> list[Row]:
        """One row for each call of a module, in order."""
        return in_order(super().rows)


def _same_step(row: Row) -> tuple[Any, ...]:
    """What a step and the modules called in it have in common."""
    in_loop = row.path.rpartition("/")[2].startswith(("scan[", "while["))
    return (row.path if in_loop else "", row.lane, row.outer, row.call, row.index)


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
      on_event: called on the host with each event, on a thread of jaxtap's own.
      on_row: called on the host with each row, likewise.
      capacity: keep only the newest this many rows.
      threads: `"own"` sees the thread that opened it, `"all"` every thread.

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
    wanted = gate(by, every, wires) if every > 1 else None
    selection = Selection(function=ByIdentity(of_step(by)), gate=None if wanted is None else ByIdentity(wanted))
    marks: list[tuple[tuple[str, ...], Selection]] = [((MARK,), selection)]
    hooks: list[tuple[str, Any]] = [(HOOK, ())]
    if patterns:
        marks.append((("*",), Selection(function=ByIdentity(_activations.of_output))))
        hooks.append((_activations.HOOK, _activations.Wanted(patterns, in_training=True)))
    plan = Plan(
        name="train_step_monitor",
        view=View(select=None, marks=tuple(marks), hooks=tuple(hooks)),
        columns=_columns,
        looked_for="calls of TrainState.apply_gradients, nnx.Optimizer.update and optax.apply_updates",
        patches=lambda: [*_hook.patches(), *_activations.patches()],
        around=_activations.intercepting,
        first=COLUMNS,
        merges=_merges,
    )
    return Monitor(plan, Choices(wires, on_event, on_row, capacity, threads))


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

    Modules are those of linen and of nnx, unmodified, in jitted code, also in functions compiled before. A row has
    `module` (its path in the model), `activation_rms` (root mean square), `activation_max` (largest magnitude),
    `dead_fraction` (share of zeros) and `activation_nonfinite`; `order` numbers calls as they were traced, and `step`
    is the index in the loop around, such as the layer's under `nn.scan` over layers.

    Args:
      patterns: globs; a module is seen if its path in the model, the end of it, or its class fits one.
      backward: also `cotangent_rms`, the root mean square of the cotangent of what a module returned, in its own rows.
      tripwires: True for `jaxtap_flax.tripwires()`, of which two look at activations, False for none, or a list.
      on_event: called on the host with each event, on a thread of jaxtap's own.
      on_row: called on the host with each row, likewise.
      capacity: keep only the newest this many rows.
      threads: `"own"` sees the thread that opened it, `"all"` every thread; of linen's modules, its own alone.

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
        columns=_columns,
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
