"""What a lens delivers: one frozen record for each thing seen."""

from __future__ import annotations

import dataclasses
from typing import Any

KINDS = ("carry", "output", "primitive", "mark", "backward", "trace", "compile")

# Those that tell of programs before they run, with words for values.
EARLY_KINDS = ("trace", "compile")


@dataclasses.dataclass(frozen=True)
class TapEvent:
    """One thing seen inside a running program.

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
