"""Recording without any call of the host: what was seen is a result of the program."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxtap import _active, _kept
from jaxtap._api import taps_of, view_of, wants_backward
from jaxtap._around import Around
from jaxtap._config import OPS, Host, check_callable, check_count, check_marks
from jaxtap._events import TapEvent
from jaxtap._flush import Slot
from jaxtap._lens import Lens, Opening
from jaxtap._payload import is_array
from jaxtap._recorder import Events, FlightRecorder
from jaxtap._report import Report
from jaxtap._retype import on_untyped
from jaxtap._taps import PrimitiveTap
from jaxtap._types import LanesSpec, MarksSpec, SelectSpec, WhereSpec
from jaxtap._walk import walk

if TYPE_CHECKING:
    import pandas as pd


@jax.tree_util.register_pytree_node_class
class Collected:
    """What a collected program has seen: a pytree of arrays, and once those are there, a recording.

    `events`, `df` and `report` are as those of `FlightRecorder`. The time of all events is that at which it was first
    asked.

    >>> import jax
    >>> _, recording = collect(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + 1.0, x))(0.0)
    >>> len(recording.events), recording.dropped, recording.report().ok
    (3, 0, True)

    Raises:
      TypeError: from all of these within a program that is being traced, where no value is there yet.
    """

    def __init__(self, slots: Sequence[Slot], host: Host, used: Sequence[Any], rings: Sequence[Sequence[Any]]) -> None:
        self._slots, self._host, self._used, self._rings = tuple(slots), host, used, rings
        self._found: tuple[FlightRecorder, int, Sequence[TapEvent]] | None = None

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Its arrays, and what is known without them."""
        return (list(self._used), [list(rings) for rings in self._rings]), (self._slots, self._host)

    @classmethod
    def tree_unflatten(cls, known: Any, arrays: Any) -> Collected:
        """The inverse of `tree_flatten`."""
        return cls(*known, *arrays)

    def _recorded(self) -> tuple[FlightRecorder, int, Sequence[TapEvent]]:
        if self._found is None:
            leaves = jax.tree_util.tree_leaves((self._used, self._rings))
            if any(isinstance(leaf, Tracer) for leaf in leaves):
                raise TypeError(
                    "what was collected has no values yet: the program is being traced. Return it from the function "
                    "that is compiled, and look at it outside."
                )
            if any(np.ndim(used) for used in self._used):
                raise TypeError(
                    "what was collected was mapped over: collect the mapped function, collect(jax.vmap(f))."
                )
            self._found = self._replayed()
        return self._found

    def _replayed(self) -> tuple[FlightRecorder, int, Sequence[TapEvent]]:
        recorder = FlightRecorder()
        if not self._slots:
            return recorder, 0, ()
        lens = Lens(self._slots[0].entry.key.view, self._host, recorder)
        found, lost = _kept.chunks(self._slots, self._used, [list(map(np.asarray, rings)) for rings in self._rings])
        if found:
            lens.take_chunks(found, time.time())
        # The recorder asks the lens for its report as long as it lives.
        recorder.account = lens.report
        return recorder, lost, lens.trips

    @property
    def events(self) -> Events:
        """The events, in the order in which the program made them: a sequence."""
        return self._recorded()[0].events

    @property
    def dropped(self) -> int:
        """How many rows `last` has let go."""
        return self._recorded()[1]

    def df(self, *, kind: str | None = None, path: str | None = None) -> pd.DataFrame:
        """The events as a table, as `FlightRecorder.df` gives it."""
        return self._recorded()[0].df(kind=kind, path=path)

    def report(self) -> Report:
        """What was seen and what was not."""
        return self._recorded()[0].report()

    def trips(self) -> list[TapEvent]:
        """The events of tripwires that have fired, the first 1,000."""
        return list(self._recorded()[2])

    def __repr__(self) -> str:
        return f"<Collected: {len(self._slots)} loops and points>"


def collect(
    f: Callable[..., Any],
    *,
    last: int | None = None,
    select: SelectSpec = None,
    select_ys: SelectSpec = None,
    ops: Sequence[str] = OPS,
    sample_every: int = 1,
    where: WhereSpec = None,
    max_depth: int | None = None,
    taps: Sequence[PrimitiveTap] = (),
    marks: MarksSpec = None,
    backward: bool = False,
    select_backward: SelectSpec = None,
    lanes: LanesSpec = None,
    internals: bool = False,
) -> Callable[..., tuple[Any, Collected]]:
    """A function that returns what `f` does, and what happened in its loops: `result, recording = g(*args)`.

    It sees what `jaxtap.record` sees, but no host is called: what was seen is a result of the program. So `g` is pure.
    It may be compiled with `jax.jit`, ahead of time, and exported; the persistent compilation cache keeps it, and it
    runs where there are no callbacks. In return nothing is live. Transform `f`, not `g`: `collect(jax.vmap(f))`,
    `collect(jax.grad(f))`. A value that is marked outside of any loop becomes a result like any that is returned, which
    can move a last bit of what XLA would have fused with it.

    Args:
      f: any function that runs JAX programs and returns a pytree of arrays.
      last: keep the newest this many events of each loop and point, in memory of the device that is taken for as many.
        None keeps all; a loop whose number of steps is not known beforehand, such as a `while_loop`, needs it.

    All other arguments are those of `jaxtap.verbose`. Called uncompiled, it is traced in each call.

    Raises:
      ValueError: for a value that is not allowed; when called, if `last` is needed, or for `watch_nan()` without names,
        which needs the host.
      SelectError: when called, if `select` cannot be applied to a loop.

    >>> import jax
    >>> def doubled(x):
    ...     return jax.lax.fori_loop(0, 3, lambda i, c: c * 2.0, x)
    >>> result, recording = jax.jit(collect(doubled))(1.0)
    >>> float(result), [float(event.value[1]) for event in recording.events]
    (8.0, [2.0, 4.0, 8.0])
    """
    check_callable("f", f)
    last = None if last is None else check_count("last", last, 1, "how many events of each loop are kept")
    taps = taps_of(taps)
    view = view_of(
        select=select,
        select_ys=select_ys,
        wants_carry=True,
        wants_outputs=select_ys is not None,
        ops=ops,
        sample_every=sample_every,
        where=where,
        max_depth=max_depth,
        taps=taps,
        marks=check_marks(marks),
        backward=wants_backward(backward, select_backward),
        select_backward=select_backward,
        last=None,
        lanes=lanes,
        internals=internals,
        shards=False,
        buffer=None,
        buffer_bytes=1,
    )
    host = Host(taps=tuple(tap.host for tap in taps))
    lens = Lens(view, host, None)
    key = _active.Key(view)
    key.lend(lens)

    @functools.wraps(f)
    def g(*args: Any, **kwargs: Any) -> tuple[Any, Collected]:
        leaves, treedef = jax.tree_util.tree_flatten((args, kwargs))
        dynamic = [i for i, leaf in enumerate(leaves) if is_array(leaf)]

        def flat(*values: Any) -> Any:
            given = list(leaves)
            for i, value in zip(dynamic, values, strict=True):
                given[i] = value
            again, named = jax.tree_util.tree_unflatten(treedef, given)
            return f(*again, **named)

        values = [leaves[i] for i in dynamic]
        opening = Opening(lens, key)
        opening.open()
        try:
            traced, shapes = jax.make_jaxpr(flat, return_shape=True)(*values)
        finally:
            opening.close()
        around = Around(seals=jax.default_backend() == "cpu", gathers=True)
        program = jax.make_jaxpr(on_untyped(lambda *values: walk(traced, values, around)[0]))(*values)
        kept = _kept.Kept(program, last)
        outs, state = kept.evaluate(program, values, kept.empty())
        result = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), outs)
        return result, Collected(list(kept.slots.values()), host, state.used, state.rings)

    return g
