"""What a monitor has seen, in a few words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxtap.internal import Row, Trip
from jaxtap_flax._steps import Steps

BEFORE = 20
_SHOWN = ("loss", "grad_norm", "update_ratio")


@dataclasses.dataclass(frozen=True)
class Summary:
    """How training went. Print it for a table.

    Attributes:
      steps: how many were seen.
      first_bad_step: the step at which a tripwire fired first; None if none has.
      layer: the layer, or module, that it names; empty where it names none.
      tripwire: its name.
      message: what it said.
      before: up to 20 rows that led up to it, the bad one last.
      trips: every tripwire that has fired, with how often.
      last: what the last row holds.

    >>> import jax, jax.numpy as jnp, optax
    >>> from flax.training.train_state import TrainState
    >>> @jax.jit
    ... def train_step(state):
    ...     loss, grads = jax.value_and_grad(lambda p: jnp.sum(p["dense"]["w"] ** 2))(state.params)
    ...     return state.apply_gradients(grads=grads)
    >>> state = TrainState.create(apply_fn=None, params={"dense": {"w": jnp.ones(2)}}, tx=optax.sgd(0.01))
    >>> with train_step_monitor() as monitor:
    ...     for _ in range(3):
    ...         state = train_step(state)
    >>> summary = monitor.summary()
    >>> summary.steps, summary.first_bad_step, round(summary.last["loss"], 3)
    (3, None, 1.845)
    """

    steps: int
    first_bad_step: int | None
    layer: str
    tripwire: str
    message: str
    before: list[Row]
    trips: dict[str, int]
    last: dict[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.steps} steps"]
        if self.first_bad_step is None:
            lines.append("no tripwire has fired")
        else:
            lines.append(f"first bad step {self.first_bad_step}: {self.message}")
            lines += _table(self.before)
            lines += [f"{name}: {count} times" for name, count in self.trips.items()]
        if self.last:
            lines.append("last: " + ", ".join(f"{name} {self.last[name]:.4g}" for name in _SHOWN if name in self.last))
        return "\n".join(lines)


def _table(rows: Sequence[Row]) -> list[str]:
    head = "  step" + "".join(f"{name:>14}" for name in _SHOWN)
    return [head, *(f"{row.step:>6}" + "".join(f"{row[name]:>14.4g}" for name in _SHOWN) for row in rows)]


def summary(rows: Sequence[Row], trips: Sequence[Trip], lead: Sequence[Row], steps: Steps) -> Summary:
    """A summary of training.

    Args:
      rows: those of steps.
      trips: tripwires that have fired, that which counts as the first in front.
      lead: rows of steps among which are those that led up to the first trip.
      steps: tells which step a row is of.
    """
    counts: dict[str, int] = {}
    for trip in trips:
        counts[trip.tripwire] = counts.get(trip.tripwire, 0) + 1
    first = trips[0] if trips else None
    bad = None if first is None else steps.of(first.row)
    return Summary(
        steps=len(rows),
        first_bad_step=bad,
        layer="" if first is None else _layer(first),
        tripwire="" if first is None else first.tripwire,
        message="" if first is None else first.message,
        before=[] if bad is None else [row for row in lead if row.step <= bad][-BEFORE:],
        trips=counts,
        last=dict(rows[-1].values) if rows else {},
    )


def _layer(trip: Trip) -> str:
    return trip.row.values.get("module") or trip.layer
