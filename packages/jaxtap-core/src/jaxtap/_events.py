"""What a lens delivers: one frozen record for each thing seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("carry", "output", "primitive", "mark", "backward", "trace", "compile")

# Those that tell of programs before they run, with words for values.
EARLY_KINDS = ("trace", "compile")


@dataclasses.dataclass(frozen=True)
class TapEvent:
    """One thing seen inside a running program.

    Two are equal if all their fields are, arrays by what they hold, NaN being equal to NaN.

    Attributes:
      path: address of the loop, equation or value, such as `"scan[0]/while[1]"`. It is the same eagerly, under `jit`,
        `vmap` and `grad`, and in every recording of the same program.
      step: 0-based iteration index in its own loop; -1 outside any loop.
      value: what `select` returned, as numpy arrays in the same pytree. Without a `select`, the flat
        tuple of leaves. PRNG key leaves arrive as JAX key arrays, since numpy has no such dtype.
      total: trip count of the loop, None where it is not known beforehand (`while_loop`).
      kind: `"carry"` for the loop state after the step, `"output"` for what a scan step returns, `"primitive"` for
        the outputs of a tapped primitive, `"mark"` for a value that code has named, `"backward"` for the
        cotangent of a loop's state after the step, or of a named value, in the gradient pass; with `trace=True` also
        `"trace"` for a loop that is traced, with the type of each leaf for a value, and `"compile"` for a program that
        is compiled.
      lane: index under `vmap`, outermost first; `()` without `vmap`.
      outer: step of each enclosing loop, outermost first; `()` for an outermost loop.
      call: which execution of that address within this recording, from 0; for an equation or marked value in a loop,
        which execution of the loop.
      time: arrival on the host, in seconds since the epoch.
      source: where the loop body was written, as `"file.py:42 (function)"`.
      device: index of the device that sent it, among those of the program in the order of their mesh; 0 where there is
        one, and for whole values.
      process: index of the process that received it; 0 where there is one.

    >>> import jax
    >>> with record(select="x") as rec:
    ...     y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    >>> event = rec.events[-1]
    >>> event.path, event.step, event.total, float(event.value), event.kind
    ('scan[0]', 2, 3, 3.0, 'carry')
    """

    path: str
    step: int
    value: Any
    total: int | None = None
    kind: str = "carry"
    lane: tuple[int, ...] = ()
    outer: tuple[int, ...] = ()
    call: int = 0
    time: float = 0.0
    source: str = ""
    device: int = 0
    process: int = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TapEvent):
            return NotImplemented
        names = (field.name for field in dataclasses.fields(self) if field.name != "value")
        return all(getattr(self, n) == getattr(other, n) for n in names) and _same(self.value, other.value)


def _same(a: Any, b: Any) -> bool:
    """Whether two values are the same, leaf by leaf."""
    if isinstance(a, (tuple, list, dict)):
        leaves, treedef = jax.tree_util.tree_flatten(a)
        others, structure = jax.tree_util.tree_flatten(b)
        return treedef == structure and all(map(_same, leaves, others))
    if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return isinstance(b, jax.Array) and a.dtype == b.dtype and _same(*map(jax.random.key_data, (a, b)))
    if not isinstance(a, (np.ndarray, np.generic, jax.Array, float, complex)):
        return bool(a == b)
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
