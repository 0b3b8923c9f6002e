"""Many events of one kind from one place, as columns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxtap._events import TapEvent
from jaxtap._table import leaf_columns


class Form(Protocol):
    """How arrays make up a value.

    Attributes:
      treedef: its structure.
      restores: for each array, what turns it into what the program had.
      fixed: leaves that are no arrays, by position.
      columns: what the leaves are called in a table; empty where the value says so itself.
    """

    @property
    def treedef(self) -> Any: ...
    @property
    def restores(self) -> tuple[Callable[[np.ndarray], Any] | None, ...]: ...
    @property
    def fixed(self) -> tuple[tuple[int, Any], ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...


class _Form(NamedTuple):
    treedef: Any
    restores: tuple[Callable[[np.ndarray], Any] | None, ...]
    fixed: tuple[tuple[int, Any], ...]
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TapChunk:
    """Events of one kind from one loop, equation or marked value, as columns: what a `Sink` is given.

    The rows of each column belong together; they are in the order in which the events happened.

    Attributes:
      path: address, as `TapEvent.path`.
      kind: kind, as `TapEvent.kind`.
      total: trip count of the loop, or None.
      source: where it was written.
      device: index of the device that sent it.
      process: index of the process that received it.
      steps: int (n,), the step of each event.
      outer: int (n, depth), steps of the enclosing loops, outermost first.
      calls: int (n,), which execution of that address.
      times: float64 (n,), arrival on the host, in seconds since the epoch.
      lanes: int (n, axes), index under `vmap`, outermost first.
      order: int (n,), the place of each event among all those that arrived with it.
      form: what makes values of `arrays`; jaxtap's own.
      arrays: leaves as they were sent, each (n, ...); jaxtap's own. See `values`.

    >>> import jax, jax.numpy as jnp
    >>> class Totals:
    ...     seen = []
    ...     def write(self, chunk):
    ...         self.seen += zip(chunk.steps.tolist(), chunk.values["total"].tolist())
    >>> with record(select="total", on_step=Totals()):
    ...     result = jax.lax.scan(lambda total, x: (total + x, None), 0.0, jnp.ones(3))
    >>> Totals.seen
    [(0, 1.0), (1, 2.0), (2, 3.0)]
    """

    path: str
    kind: str
    total: int | None
    source: str
    device: int
    process: int
    steps: np.ndarray
    outer: np.ndarray
    calls: np.ndarray
    times: np.ndarray
    lanes: np.ndarray
    order: np.ndarray
    form: Form
    arrays: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @functools.cached_property
    def leaves(self) -> tuple[Any, ...]:
        """Each leaf of the selected values as one array (n, ...); what is no array, as it is."""
        pairs = zip(self.arrays, self.form.restores, strict=True)
        leaves: list[Any] = [array if restore is None else restore(array) for array, restore in pairs]
        for position, leaf in self.form.fixed:
            leaves.insert(position, leaf)
        return tuple(leaves)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the leaves are called."""
        return self.form.columns or leaf_columns(self._value(self.leaves))

    @property
    def values(self) -> dict[str, Any]:
        """Each leaf of the selected values, by its name in a table: arrays (n, ...), PRNG keys as JAX key arrays.

        A leaf that is no array, such as a string, is there once, for all.
        """
        return dict(zip(self.columns, self.leaves, strict=False))

    def events(self) -> Iterator[TapEvent]:
        """The events, one by one."""
        fixed = {position for position, _ in self.form.fixed}
        places = (self.steps.tolist(), self.calls.tolist(), self.times.tolist())
        tuples = (map(tuple, self.outer.tolist()), map(tuple, self.lanes.tolist()))
        for i, (step, call, time, outer, lane) in enumerate(zip(*places, *tuples, strict=True)):
            value = self._value(tuple(leaf if k in fixed else leaf[i] for k, leaf in enumerate(self.leaves)))
            yield TapEvent(
                path=self.path,
                step=step,
                value=value,
                total=self.total,
                kind=self.kind,
                lane=lane,
                outer=outer,
                call=call,
                time=time,
                source=self.source,
                device=self.device,
                process=self.process,
            )

    @classmethod
    def of(cls, event: TapEvent) -> TapChunk:
        """A single event."""
        leaves, treedef = jax.tree_util.tree_flatten(event.value)
        is_array = [isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves]
        arrays = tuple(np.asarray(leaf)[None] for leaf, own in zip(leaves, is_array, strict=True) if own)
        fixed = tuple((i, leaf) for i, leaf in enumerate(leaves) if not is_array[i])
        row = {name: np.array([getattr(event, name)]) for name in ("step", "call", "time")}
        places = {name: np.array(getattr(event, name), np.int64).reshape(1, -1) for name in ("lane", "outer")}
        return cls(
            path=event.path,
            kind=event.kind,
            total=event.total,
            source=event.source,
            device=event.device,
            process=event.process,
            steps=row["step"],
            outer=places["outer"],
            calls=row["call"],
            times=row["time"],
            lanes=places["lane"],
            order=np.zeros(1, np.int64),
            form=_Form(treedef, (None,) * len(arrays), fixed, leaf_columns(event.value)),
            arrays=arrays,
        )

    def _value(self, leaves: tuple[Any, ...]) -> Any:
        return self.form.treedef.unflatten(leaves)
