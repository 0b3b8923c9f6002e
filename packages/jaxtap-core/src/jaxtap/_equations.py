"""Marks beside single equations: which are to be seen, and what they are called."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jcore
from jax.extend import source_info_util

from jaxtap._backward import is_identity
from jaxtap._jaxprs import arg_names, is_dropped, is_entered, is_literal, subjaxprs
from jaxtap._mark import Made, Path, Site, is_floating, is_mark, mark_eqn
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
    return tuple(key for key in keys if any(fits(name, t.primitives) for t in key.view.taps))


def site_of(primitive: str, source: str, count: int) -> Site:
    """What is known of an equation with some number of outputs."""
    return Site(primitive, "primitive", source, tuple(f"outputs[{i}]" for i in range(count)), None)


def is_finite_literal(atom: Any) -> bool:
    """Whether a constant written into a jaxpr is finite, as one that is no floating-point number always is."""
    value = np.asarray(atom.val)
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def is_float(atom: Any) -> bool:
    """Whether a variable may hold a value that is not finite."""
    return hasattr(atom.aval, "dtype") and jnp.issubdtype(atom.aval.dtype, jnp.inexact)


class _Ledger:
    """The floating-point values of a jaxpr, and which equation makes which out of which."""

    def __init__(self, jaxpr: Any) -> None:
        self.values: list[Any] = []
        self.names: list[str] = []
        self.equations: list[Made] = []
        self._index: dict[Any, int] = {}
        names = arg_names(jaxpr) or ("",) * len(jaxpr.invars)
        for var, name in zip(jaxpr.invars, names, strict=True):
            self._add(var, name or "a captured value")
        for var in jaxpr.constvars:
            self._add(var, "a captured constant")

    def _add(self, var: Any, name: str) -> int | None:
        if not is_float(var) or is_dropped(var):
            return None
        self._index[var] = len(self.values)
        self.values.append(var)
        self.names.append(name)
        return self._index[var]

    def enter(self, eqn: Any, number: int) -> None:
        """Take an equation down."""
        name, operands = eqn.primitive.name, [v for v in eqn.invars if not is_literal(v)]
        made = [i for v in eqn.outvars if (i := self._add(v, name)) is not None]
        if made:
            looked_into = is_entered(name) and any(True for _ in subjaxprs(eqn))
            finite = all(is_finite_literal(v) for v in eqn.invars if is_literal(v))
            used = tuple(self._index[v] for v in operands if v in self._index)
            source = source_of_call(eqn.source_info)
            self.equations.append(Made(name, number, source, tuple(made), used, finite, looked_into))

    def mark(self, head: Path, witnesses: list[Any], keys: tuple[Key, ...]) -> list[Any]:
        """The mark beside all of them, if there are any."""
        if not self.equations:
            return []
        site = Site("equations", "equations", "", tuple(self.names), None, None, tuple(self.equations))
        return [mark_eqn([*self.values, *witnesses], site, head, keys, source_info_util.new_source_info())]


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
        self._hunters = tuple(key for key in keys if key.view.hunts)
        self._ledger = _Ledger(jaxpr) if self._hunters else None
        self._counts: dict[str, int] = {}

    def around(self, eqn: Any) -> list[Any]:
        """The equation, with the marks that belong beside it."""
        if is_mark(eqn) or is_identity(eqn):
            return self._placed(eqn) if is_floating(eqn) else [eqn]
        name = eqn.primitive.name
        number = self._next(name)
        if self._ledger is not None:
            self._ledger.enter(eqn, number)
        keys = wanting(name, self._keys) if self._keys else ()
        if not keys or not eqn.outvars:
            return [eqn]
        named = [jcore.Var(v.aval) if is_dropped(v) else v for v in eqn.outvars]
        site = site_of(name, source_of_call(eqn.source_info), len(named))
        path = (*self._head, f"{name}[{number}]")
        return [
            eqn.replace(outvars=named),
            mark_eqn([*named, *self._witnesses], site, path, keys, eqn.source_info),
        ]

    def after(self) -> list[Any]:
        """The equations to put after all others."""
        return self._ledger.mark(self._head, self._witnesses, self._hunters) if self._ledger is not None else []

    def _next(self, name: str) -> int:
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number

    def _placed(self, mark: Any) -> list[Any]:
        """A marked value under its full address; an equation marked on its own is marked anew, with its address."""
        site: Site = mark.params["site"]
        if site.kind == "primitive":
            return []
        path = (*self._head, f"{site.op}[{self._next(f'{site.kind} {site.op}')}]")
        if is_identity(mark):
            return [mark.replace(params={**mark.params, "path": path})]
        witnesses = [v for v in self._witnesses if not is_literal(v)]
        # A vmap within the body has mapped the value, not what the body was given.
        unmapped = (None,) * len(witnesses)
        layers = tuple((size, (*dims[: len(site.names)], *unmapped)) for size, dims in mark.params["layers"])
        operands = [*mark.invars[: len(site.names)], *witnesses]
        return [mark.replace(invars=operands, params={**mark.params, "path": path, "layers": layers})]
