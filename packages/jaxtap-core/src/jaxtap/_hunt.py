"""The hunt for the equation that has made the first value that is not finite.

The settled state of a loop is looked at on the device after each step. Only when a leaf of it turns NaN or
infinite is that one step evaluated again, from the state before it, and a summary of every value in it crosses
to the host, which finds the equation that made such a value out of finite ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap._active import Key
from jaxtap._around import Around, aligned
from jaxtap._emit import HuntEntry, send_from_point
from jaxtap._equations import is_float
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._lanes import chosen, mask_of
from jaxtap._mark import Made, Path, Site, own_marks
from jaxtap._payload import lanes_of, numbering, over_lanes, tapping


@dataclasses.dataclass(frozen=True)
class Hunter:
    """A tap that looks for the first value that is not finite.

    Attributes:
      key: the lens.
      index: which of its taps.
    """

    key: Key
    index: int


@dataclasses.dataclass(frozen=True)
class Hunt:
    """One step of a loop that is evaluated again.

    Attributes:
      hunters: who wants to know.
      path: address of the loop.
    """

    hunters: tuple[Hunter, ...]
    path: Path


def hunters(marks: Sequence[Any]) -> tuple[Hunter, ...]:
    """Who looks at the state of a loop, given its marks."""
    found: list[Hunter] = []
    for key in marks[0].params["lenses"] if marks else ():
        text = numbering(key).text(marks[0].params["path"])
        found += [Hunter(key, i) for i, _ in tapping(key, "state", marks[0].params["site"], text)]
    return tuple(found)


def hunts_inside(jaxpr: Any) -> bool:
    """Whether a tap looks at each step of a loop in `jaxpr`, or of the loop whose body it is, as an inner one."""
    own = hunters(own_marks(jaxpr))
    deeper = (sub for eqn in inner(jaxpr).eqns for sub in subjaxprs(eqn))
    return any(hunter.key.view.taps[hunter.index].inner for hunter in own) or any(map(hunts_inside, deeper))


def _counts(value: Any) -> Any:
    """Whether a value holds NaN, and whether it holds infinities."""
    return jnp.stack([jnp.isnan(value).any(), jnp.isinf(value).any()])


def _ills(mark: Any, values: Sequence[Any]) -> Any:
    """For each lane, leaf and kind, whether a leaf of a mark is not finite; None if no leaf can be."""
    if not any(map(is_float, mark.invars[: len(values)])):
        return None

    def one_lane(values: Sequence[Any]) -> Any:
        return jnp.stack([_counts(v) for v in values if jnp.issubdtype(v.dtype, jnp.inexact)])

    return over_lanes(mark.params["layers"], len(values), one_lane)(list(values))


def watch(
    hunt: Hunt,
    marks: Sequence[Any],
    around: Around,
    mask: Callable[[tuple[int, ...]], Any],
    before: Callable[[Any], list[Any] | None],
    after: Callable[[Any], list[Any]],
    again: Callable[[Around], Any],
) -> Any:
    """After a step: if a leaf has turned NaN or infinite, evaluate the step again.

    Args:
      hunt: who looks, at which loop.
      marks: the marks of the loop.
      around: where its body stands.
      mask: which lanes have run the step, over the lanes of a mark.
      before: reads the leaves of a mark as they were; None for outputs, which were not.
      after: reads them as they are.
      again: evaluates the step once more.

    Returns:
      Whether a leaf has turned.
    """
    found = [(mark, ills) for mark in marks if (ills := _ills(mark, after(mark))) is not None]
    if not found:
        return jnp.bool_(False)
    lanes = lanes_of(found[0][0].params["layers"])
    running = mask(lanes)
    if lanes:
        asked = [mask_of(chosen(hunter.key.view.lanes, lanes), lanes) for hunter in hunt.hunters]
        if not np.all(asked):
            running = np.any(asked, axis=0) & (True if running is None else running)

    def per_lane(flags: Any) -> Any:
        bad = flags.any(axis=(-2, -1))
        return bad if running is None else bad & running

    def turned() -> Any:
        was = {id(mark): _ills(mark, old) for mark, _ in found if (old := before(mark)) is not None}
        # What is returned from a state that is ill already says nothing new.
        sick = jnp.concatenate(list(was.values()), axis=-2).any(axis=-2, keepdims=True) if was else jnp.bool_(False)
        new = [ills & ~was.get(id(mark), sick) for mark, ills in found]
        fresh = per_lane(jnp.concatenate(new, axis=-2))
        here = dataclasses.replace(around, lanes=lanes, mask=fresh if lanes else None, twin=True, hunt=hunt)

        def rerun() -> None:
            again(here)

        lax.cond(fresh.any(), rerun, lambda: None)
        return fresh.any()

    bad = per_lane(jnp.concatenate([ills for _, ills in found], axis=-2)).any()
    return lax.cond(bad, turned, lambda: jnp.bool_(False))


def report(params: dict[str, Any], values: Sequence[Any], around: Around) -> None:
    """Send a summary of each value of a step, or of a part of it, that is evaluated again.

    Args:
      params: the parameters of the mark beside its equations.
      values: the values that it stands beside.
      around: where it stands.
    """
    site: Site = params["site"]
    hunt: Hunt = around.hunt
    # Captured constants are among the values: XLA would summarise those when compiling, which takes long.
    values = lax.optimization_barrier(list(values))
    lanes = lanes_of(params["layers"])
    mask = aligned(around, lanes) if lanes else None

    def one_lane(values: Sequence[Any]) -> Any:
        return jnp.stack([_summary(v) for v in values])

    table = over_lanes(params["layers"], len(values), one_lane)(list(values))
    entry = HuntEntry(
        hunters=hunt.hunters,
        path=params["path"],
        site=site,
        total=around.total,
        num_steps=len(around.steps),
        masked=mask is not None,
        is_whole=params["path"] == hunt.path,
        speaker=around.speaker,
    )
    send_from_point(entry, around.steps, mask, [table])


def _summary(value: Any) -> Any:
    """Smallest and largest finite element (of a complex value, by magnitude), count of NaN, count of infinities."""
    value = jnp.abs(value) if jnp.issubdtype(value.dtype, jnp.complexfloating) else value
    value = value.astype(jnp.float32).ravel()
    finite = jnp.isfinite(value)
    low = jnp.where(finite, value, jnp.inf).min(initial=jnp.inf)
    high = jnp.where(finite, value, -jnp.inf).max(initial=-jnp.inf)
    return jnp.stack([low, high, jnp.isnan(value).sum(dtype=jnp.float32), jnp.isinf(value).sum(dtype=jnp.float32)])


# --- On the host ---------------------------------------------------------------------------------------------


def culprit(site: Site, table: np.ndarray) -> Made | None:
    """The first equation that has made a value that is not finite out of finite ones; None if there is none."""
    ill = (table[:, 2] > 0) | (table[:, 3] > 0)
    for made in site.equations:
        if made.finite and ill[list(made.made)].any() and not ill[list(made.used)].any():
            return made
    return None


def summary(row: np.ndarray) -> dict[str, Any]:
    """A row of the table, as events hold it."""
    nothing = row[0] > row[1]
    low, high = (np.float32(np.nan),) * 2 if nothing else (row[0], row[1])
    return {"low": low, "high": high, "nan": int(row[2]), "inf": int(row[3])}


def sick_inputs(site: Site, table: np.ndarray) -> list[str]:
    """Names of what a step was given and was not finite then."""
    made = {i for equation in site.equations for i in equation.made}
    ill = (table[:, 2] > 0) | (table[:, 3] > 0)
    return [name for i, name in enumerate(site.names) if i not in made and ill[i]]
