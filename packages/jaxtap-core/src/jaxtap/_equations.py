"""Marks beside single equations: which are to be seen, and what they are called."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING, Any

from jax.extend import core as jcore

from jaxtap._jaxprs import is_literal
from jaxtap._mark import Path, Site, is_floating, is_mark, mark_eqn
from jaxtap._sources import source_of_call

if TYPE_CHECKING:
    from jaxtap._active import Key


@functools.lru_cache(maxsize=4096)
def fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name is one of some names, or fits one of some globs."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def wanting(name: str, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """The lenses with a tap on a primitive."""
    if name.startswith("jaxtap_"):
        return ()
    return tuple(key for key in keys if any(fits(name, tap.primitives) for tap in key.view.taps))


def site_of(primitive: str, source: str, count: int) -> Site:
    """What is known of an equation with some number of outputs."""
    return Site(primitive, "primitive", source, tuple(f"outputs[{i}]" for i in range(count)), None)


class Points:
    """Walks the equations of one jaxpr, marking those that are to be seen and numbering marked values.

    Args:
      jaxpr: the open jaxpr.
      head: its address.
      keys: the lenses.
    """

    def __init__(self, jaxpr: Any, head: Path, keys: tuple[Key, ...]) -> None:
        self._head, self._keys = head, keys
        self._witnesses = list(jaxpr.invars)
        self._counts: dict[str, int] = {}

    def around(self, eqn: Any) -> list[Any]:
        """The equation, with the marks that belong beside it."""
        if is_mark(eqn):
            return self._placed(eqn) if is_floating(eqn) else [eqn]
        name = eqn.primitive.name
        number = self._next(name)
        keys = wanting(name, self._keys) if self._keys else ()
        if not keys or not eqn.outvars:
            return [eqn]
        named = [jcore.Var(v.aval) if type(v).__name__ == "DropVar" else v for v in eqn.outvars]
        site = site_of(name, source_of_call(eqn.source_info), len(named))
        path = (*self._head, f"{name}[{number}]")
        return [
            eqn.replace(outvars=named),
            mark_eqn([*named, *self._witnesses], site, path, keys, eqn.source_info),
        ]

    def _next(self, name: str) -> int:
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number

    def _placed(self, mark: Any) -> list[Any]:
        """A marked value under its full address; an equation marked on its own is marked anew, with its address."""
        site: Site = mark.params["site"]
        if site.kind == "primitive":
            return []
        path = (*self._head, f"{site.op}[{self._next('mark ' + site.op)}]")
        witnesses = [v for v in self._witnesses if not is_literal(v)]
        # A vmap within the body has mapped the value, not what the body was given.
        unmapped = (None,) * len(witnesses)
        layers = tuple((size, (*dims[: len(site.names)], *unmapped)) for size, dims in mark.params["layers"])
        operands = [*mark.invars[: len(site.names)], *witnesses]
        return [mark.replace(invars=operands, params={**mark.params, "path": path, "layers": layers})]
