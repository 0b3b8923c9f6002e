"""How a step of a loop is evaluated: with crossings written into it, or whole, with a copy beside it that has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from jaxtap._announce import has_listeners, sends
from jaxtap._around import Around
from jaxtap._jaxprs import as_function, inner, rewrap, subjaxprs, unnamed
from jaxtap._mark import quiet, strip
from jaxtap._seal import is_pure


@dataclasses.dataclass(frozen=True)
class Way:
    """How the steps of a loop are realised.

    Attributes:
      inline: with the crossings of inner loops written into the step itself.
      observed: without; a copy of the step beside it, starting from the same state, has them.
    """

    inline: bool
    observed: bool


def way_of(closed: Any, around: Around) -> Way:
    """How to realise the steps of a loop (or evaluations of its condition).

    A step in which nothing is sent is one piece, as it is without a lens. One with crossings inside would be
    compiled in other pieces. So it is left whole, and its inner loops are seen in a copy: from the true state
    at each step, such that a copy that differs in a last bit never drifts away.
    """
    points = has_listeners(closed)
    holds = points or any(sends(sub) for eqn in inner(closed).eqns for sub in subjaxprs(eqn))
    # Reading a point within the step would change how XLA compiles the step, on any backend.
    apart = (around.seals or points) and not around.twin and is_pure(closed)
    inline = not apart and (holds or not around.seals)
    return Way(inline, holds and not inline)


def plain(closed: Any, ins: Sequence[Any], want: Sequence[Any] = (), call: bool = False) -> tuple[list[Any], list[Any]]:
    """Evaluate a jaxpr without its marks; also the values of the variables in `want`."""
    jaxpr = strip(closed)
    if want:
        extended = inner(jaxpr)
        jaxpr = rewrap(jaxpr, extended.replace(outvars=[*extended.outvars, *want], debug_info=unnamed(extended)))
    run = as_function(jaxpr)
    outs = (jax.jit(run) if call else run)(*ins)
    return outs[: len(outs) - len(want)], outs[len(outs) - len(want) :]


def bare(primitive: Any, params: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """The results of a loop as it is without any lens."""
    return primitive.bind(*args, **quiet(params))
