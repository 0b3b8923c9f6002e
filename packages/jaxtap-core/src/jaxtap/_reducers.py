"""Ready selectors: what of a loop's state is worth sending, in a few numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap._config import check_count


@dataclasses.dataclass(frozen=True)
class Reducer:
    """A selector that reduces leaves to a few numbers, on the device. Call it with names to look at those leaves alone.

    Attributes:
      name: what it is called.
      reduce: from a list of flat float32 arrays to what is sent.
      leaf_names: leaves to look at, by the end of their dotted names; none for all.

    >>> import jax
    >>> with record(select=norm("x")) as rec:
    ...     y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    >>> [float(event.value) for event in rec.events], norm("x")
    ([1.0, 2.0, 3.0], norm('x'))
    """

    name: str
    reduce: Callable[[list[Any]], Any]
    leaf_names: tuple[str, ...] = ()

    def __call__(self, *leaves: Any) -> Any:
        """Reduce leaves; or, given names, a reducer of the leaves of those names."""
        if leaves and all(isinstance(leaf, str) for leaf in leaves):
            return _named(self, leaves)
        (found,) = leaves
        return self.reduce(_numbers(found if isinstance(found, tuple) else (found,)))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.leaf_names))})" if self.leaf_names else self.name


@functools.cache
def _named(reducer: Reducer, names: tuple[str, ...]) -> Reducer:
    # The same names give the same object, which keys JAX's caches.
    return dataclasses.replace(reducer, leaf_names=names)


def _numbers(leaves: Sequence[Any]) -> list[Any]:
    """The floating-point leaves, flat, complex ones as their magnitude: float64 if one is as wide, else float32."""
    found = [x for x in leaves if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.inexact)]
    real = [jnp.abs(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else jnp.asarray(x) for x in found]
    dtype = jnp.float64 if any(x.dtype == jnp.float64 for x in real) else jnp.float32
    return [x.ravel().astype(dtype) for x in real] or [jnp.zeros(0, dtype)]


def _health(leaves: list[Any]) -> Any:
    return functools.reduce(jnp.add, (jnp.sum(~jnp.isfinite(x), dtype=jnp.int32) for x in leaves))


def _norm(leaves: list[Any]) -> Any:
    # Scaled by the largest element, so that squares neither overflow nor vanish.
    scale = _extreme(jnp.maximum, jnp.max, [jnp.abs(x) for x in leaves], 0.0)
    safe = jnp.where((scale > 0) & jnp.isfinite(scale), scale, jnp.ones_like(scale))
    return safe * jnp.sqrt(functools.reduce(jnp.add, (jnp.sum(jnp.square(x / safe)) for x in leaves)))


def _extreme(pick: Any, reduce: Any, leaves: list[Any], start: float) -> Any:
    return functools.reduce(pick, (reduce(x, initial=start) for x in leaves))


def _stats(leaves: list[Any]) -> dict[str, Any]:
    count = max(sum(x.size for x in leaves), 1)
    return {
        "min": _extreme(jnp.minimum, jnp.min, leaves, jnp.inf),
        "max": _extreme(jnp.maximum, jnp.max, leaves, -jnp.inf),
        "mean": functools.reduce(jnp.add, map(jnp.sum, leaves)) / count,
        "rms": _norm(leaves) / count**0.5,
        "non_finite": _health(leaves),
    }


_HEALTH = Reducer("health", _health)
_STATS = Reducer("stats", _stats)
_NORM = Reducer("norm", _norm)


def health(*leaves: Any) -> Any:
    """A selector: how many elements are NaN or infinite, over all floating-point leaves. An int32.

    Pass it as `select=health`, or `select=health("position")` for the leaves of some names.

    Args:
      *leaves: the leaves (one tuple of them), or names.

    >>> import jax.numpy as jnp
    >>> int(health((jnp.array([1.0, jnp.nan, jnp.inf]), jnp.arange(3))))
    2
    """
    return _HEALTH(*leaves)


def stats(*leaves: Any) -> Any:
    """A selector: `min`, `max`, `mean`, `rms` and `non_finite`, over all floating-point leaves together.

    `rms` is the root mean square, `non_finite` the count of elements that are NaN or infinite. Pass it as
    `select=stats`, or `select=stats("position")` for the leaves of some names.

    Args:
      *leaves: the leaves (one tuple of them), or names.

    >>> import jax.numpy as jnp
    >>> {name: round(float(value), 4) for name, value in stats((jnp.array([3.0, -4.0]),)).items()}
    {'min': -4.0, 'max': 3.0, 'mean': -0.5, 'rms': 3.5355, 'non_finite': 0.0}
    """
    return _STATS(*leaves)


def norm(*leaves: Any) -> Any:
    """A selector: the Euclidean norm of all floating-point leaves taken together, as `optax.global_norm` has it.

    Squares neither overflow nor vanish. Pass it as `select=norm`, or `select=norm("position")` for the leaves of
    some names.

    Args:
      *leaves: the leaves (one tuple of them), or names.

    >>> import jax.numpy as jnp
    >>> float(norm((jnp.array([3.0]), jnp.array([-4.0]))))
    5.0
    """
    return _NORM(*leaves)


@functools.cache
def histogram(bins: int = 32, low: float | None = None, high: float | None = None) -> Reducer:
    """A selector that counts the elements of all floating-point leaves by size.

    What is sent is a dictionary: `counts`, int32 of shape `(bins,)`, and `edges`, of shape `(bins + 1,)`. NaN and
    infinite elements are not counted, nor those outside of `low` to `high`.

    Args:
      bins: how many.
      low: where the first begins; None is the smallest finite element of each step.
      high: where the last ends; None is the largest.

    Raises:
      ValueError: if `bins` is less than 1, or `low` not less than `high`.

    >>> import jax.numpy as jnp
    >>> histogram(2, low=0.0, high=1.0)((jnp.array([0.1, 0.2, 0.9]),))["counts"].tolist()
    [2, 1]
    """
    check_count("bins", bins, 1, "how many ranges are counted")
    if low is not None and high is not None and not low < high:
        raise ValueError(f"low must be less than high; got low={low}, high={high}.")

    def count(leaves: list[Any]) -> dict[str, Any]:
        x = jnp.concatenate(leaves)
        finite = jnp.isfinite(x)
        first = jnp.where(finite, x, jnp.inf).min(initial=jnp.inf) if low is None else jnp.asarray(low, x.dtype)
        last = jnp.where(finite, x, -jnp.inf).max(initial=-jnp.inf) if high is None else jnp.asarray(high, x.dtype)
        empty = first > last
        first = jnp.where(empty, jnp.zeros_like(first), first)
        last = jnp.where(empty | (last <= first), first + 1, last)
        edges = jnp.linspace(first, last, bins + 1)
        place = jnp.clip(jnp.searchsorted(edges, x, side="right") - 1, 0, bins - 1)
        counted = finite & (x >= first) & (x <= last)
        counts = jnp.zeros(bins, jnp.int32).at[place].add(counted.astype(jnp.int32))
        return {"counts": counts, "edges": edges}

    return Reducer(f"histogram({bins})", count)
