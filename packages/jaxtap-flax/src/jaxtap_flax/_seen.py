"""What a monitor of training steps, and a watch on modules, have seen, and how to read it."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jaxtap import TapEvent
from jaxtap.internal import Choices, Plan, Row, Trip, Watch, table
from jaxtap_flax._hook import MARK
from jaxtap_flax._measure import COLUMNS, unpacked
from jaxtap_flax._steps import Steps, loops_around
from jaxtap_flax._summary import BEFORE, Summary, summary

if TYPE_CHECKING:
    import pandas as pd

_TO_STEP = ("activation_rms", "activation_max", "dead_fraction", "activation_nonfinite", "cotangent_rms")


@functools.lru_cache(maxsize=1024)
def _module(path: str) -> str:
    """The path of a module, from the address of what it has returned; of a step, nothing."""
    name = path.rpartition("/")[2].rpartition("[")[0]
    return "" if name == MARK else name.replace(".", "/")


def columns(event: TapEvent) -> dict[str, Any] | None:
    module = _module(event.path)
    if event.kind == "backward":
        return {"module": module, "cotangent_rms": event.value}
    if event.kind != "mark":
        return None
    return {"module": module, **event.value} if module else unpacked(event.value)


def merges(row: Row, values: Mapping[str, Any]) -> bool:
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
    """What `train_step_monitor` gives: a context, and what it has seen.

    >>> import jax.numpy as jnp, optax
    >>> params, updates = {"dense": jnp.ones(4)}, {"dense": jnp.full(4, -0.01)}
    >>> with train_step_monitor() as monitor:
    ...     params = optax.apply_updates(params, updates)
    >>> [(row.step, round(row["update_ratio"], 3)) for row in monitor.rows], monitor.trips
    ([(0, 0.01)], [])
    """

    def __init__(self, plan: Plan, choices: Choices) -> None:
        super().__init__(plan, choices)
        self._lead: collections.deque[Row] = collections.deque(maxlen=BEFORE + 1)
        self._more = 1
        self._depth: int | None = None

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

        With `activations`, what the modules returned in a step is in its row, as `activation_rms/Dense_0`; in a loop
        over layers, with the layer behind it, as `activation_rms/Block_0/Dense_0[1]`.

        Raises:
          ImportError: without pandas.
        """
        return table(self._joined(), COLUMNS)

    def _joined(self) -> list[Row]:
        """The rows of steps, with what was seen of modules in the same step."""
        rows = self.rows
        steps, by_step = Steps(rows), dict[Any, dict[str, Any]]()
        for row in self.activations:
            layer = "".join(f"[{i}]" for i in steps.place(row))
            module = row.values["module"] + layer + _again(row)
            found = {f"{name}/{module}": row.values[name] for name in _TO_STEP if name in row.values}
            by_step.setdefault(steps.key(row), {}).update(found)
        return [dataclasses.replace(row, values=row.values | by_step.get(steps.key(row), {})) for row in rows]

    def _complete(self, row: Row) -> None:
        if "module" in row.values:
            place = () if self._depth is None else loops_around(row)[self._depth :]
            if place:
                # A layer's series goes on from step to step, though its loop begins anew in each.
                row.series = (row.point, row.lane, place, 0, row.series[-1])
        else:
            self._depth = len(loops_around(row))
            # What led up to the first trip is kept whatever the capacity, and one more: a module's step comes after it.
            if self._more > 0:
                self._lead.append(row)
                self._more -= bool(self.trips)
        super()._complete(row)

    def summary(self) -> Summary:
        """What went wrong first, in which layer, and what came before; otherwise how training went.

        The 20 rows that led up to the first bad step are there whatever the capacity.
        """
        order = [wire.name for wire in self.tripwires]
        rows, lead = self.rows, list(self._lead)
        lead = lead if self.dropped else rows
        steps = Steps(lead, self.activations)

        def first(trip: Trip) -> tuple[Any, ...]:
            step, *within = steps.when(trip.row)
            return step, order.index(trip.tripwire), *within

        return summary(rows, sorted(self.trips, key=first), lead, steps)

    def plot(self) -> Any:
        """A figure: the loss, norms, and a heat map of the gradient by layer. Needs matplotlib.

        Raises:
          ImportError: without matplotlib.
        """
        from jaxtap_flax._plot import figure  # noqa: PLC0415 - an extra

        return figure(self.rows, self.trips)


def _again(row: Row) -> str:
    """For a module that is called several times in a step, which time it is."""
    return "" if row.point.endswith("[0]") else f"[{row.point.rpartition('[')[2]}"


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows of modules in the order in which those were called; host calls come in any."""
    return sorted(rows, key=lambda row: (row.call, row.outer, row.index, row.values.get("order", 0)))


class Activations(Watch):
    """What `watch_activations` gives: a context, and what it has seen.

    >>> import flax.linen as nn, jax, jax.numpy as jnp
    >>> model = nn.Dense(2)
    >>> variables = model.init(jax.random.key(0), jnp.ones((1, 3)))
    >>> with watch_activations() as seen:
    ...     y = model.apply(variables, jnp.zeros((5, 3)))
    >>> [row["activation_rms"] for row in seen.rows]
    [0.0]
    """

    @property
    def rows(self) -> list[Row]:
        """One row for each call of a module, in order."""
        return in_order(super().rows)
