"""How a step of a loop is evaluated: with crossings written into it, or whole, with a copy beside it that has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._announce import has_listeners, only_trips, sends
from jaxtap._around import Around
from jaxtap._detect import would_fire
from jaxtap._inside import all_waits
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._mark import has_points
from jaxtap._seal import is_pure, sealed, unshared


@dataclasses.dataclass(frozen=True)
class Way:
    """How the steps of a loop are realised.

    Attributes:
      inline: with the crossings of inner loops written into the step itself.
      observed: without; a copy of the step beside it, starting from the same state, has them.
      wired: whether the copy has nothing to send unless a tripwire fires.
      whole: whether the step is compiled as a piece of its own.
    """

    inline: bool
    observed: bool
    wired: bool = False
    whole: bool = False


def way_of(closed: Any, around: Around) -> Way:
    """How to realise the steps of a loop (or evaluations of its condition).

    A step in which nothing is sent is one piece, as it is without a lens. One with crossings inside would be
    compiled in other pieces. So it is left whole, and its inner loops are seen in a copy: from the true state
    at each step, such that a copy that differs in a last bit never drifts away. Where all that they send can wait in
    buffers until the step has ended, it holds no host call, and they are seen in the step itself.
    """
    points = has_listeners(closed)
    holds = points or any(sends(sub) for eqn in inner(closed).eqns for sub in subjaxprs(eqn))
    # Reading a point within the step would change how XLA compiles the step, on any backend.
    apart = (around.seals or points) and not around.twin and is_pure(closed)
    if apart and holds and around.gathers and all_waits(closed):
        return Way(inline=True, observed=False, whole=True)
    inline = not apart and (holds or not around.seals)
    observed = holds and not inline
    return Way(inline, observed, observed and only_trips(closed, own_state=False), whole=not inline)


def fires_inline(way: Way, closed: Any, ins: Sequence[Any]) -> Any:
    """Whether a tripwire fires inside a step that has its crossings written into it."""
    return would_fire(closed, ins) if way.inline and has_points(closed) else False


def observe(way: Way, closed: Any, ins: Sequence[Any], i: Any, walk: Callable[[list[Any]], Any]) -> Any:
    """Evaluate the copy of step `i` that sends what is inside it.

    Args:
      way: how the step is realised.
      closed: the body.
      ins: what the step is given.
      i: the step, a value that XLA does not know.
      walk: evaluates the copy.

    Returns:
      Whether a tripwire fired; False where that is not known.
    """
    ins = unshared(ins)
    if not way.wired:
        walk(ins)
        return False
    (fired,) = sealed(i, lambda: [would_fire(closed, ins)], [jax.ShapeDtypeStruct((), jnp.bool_)])

    def send() -> None:
        walk(ins)

    lax.cond(fired, send, lambda: None)
    return fired
