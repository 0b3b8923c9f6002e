"""The certificate: a program run with and without a lens, and every bit of the two results compared."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxtap import _active
from jaxtap._api import record

# Its first bit is part of the exponent: it has no negative numbers.
_UNSIGNED_FLOATS = ("float8_e8m0fnu",)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What came of running a program with and without a lens. True if the lens moved no bit.

    Attributes:
      identical: whether the result under the lens is bit for bit that of the first run without.
      leaves: how many leaves of the result were compared.
      first: name of the first leaf that differs, such as `"[0]['w']"` (`"result"` where the result is a bare array);
        None if none does.
      ulps: the largest distance in that leaf, in units in the last place: how many numbers of its dtype it is from one
        value to the other, and so the absolute difference of integers and bools. Numbers are ordered by sign and
        magnitude of their bits, as in IEEE 754's totalOrder: -0.0 comes right before 0.0, and NaNs lie beyond infinity,
        ordered by their payload. Hence no two different values are 0 apart. Real and imaginary parts of complex numbers
        count separately. None if no leaf differs.
      different: how many leaves differ.
      events: how many events the lens received.
      repeatable: whether two runs without a lens gave the same bits. If not, the program is not deterministic, and a
        result that differs under the lens says nothing about the lens.

    >>> import jax, jax.numpy as jnp
    >>> certificate = certify(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x * 2.0, x), jnp.ones(2))
    >>> bool(certificate), certificate.leaves, certificate.events, certificate.repeatable
    (True, 1, 3, True)
    """

    identical: bool
    leaves: int
    first: str | None
    ulps: int | None
    different: int
    events: int
    repeatable: bool

    def __bool__(self) -> bool:
        return self.identical

    def __repr__(self) -> str:
        leaves = "1 leaf" if self.leaves == 1 else f"{self.leaves} leaves"
        found = f"{leaves} identical"
        if not self.identical:
            found = f"{self.different} of {leaves} moved, the first, {self.first}, by up to {self.ulps} ulp"
        repeats = "" if self.repeatable else "; not repeatable, two runs without a lens differ as well"
        return f"<Certificate: {found}; {self.events} events{repeats}>"


def certify(f: Callable[..., Any], *args: Any, **lens: Any) -> Certificate:
    """Run `f(*args)` without a lens, under one, and without again, and compare every bit of the results.

    Signed zeros and the payloads of NaNs count; keys of random numbers are compared by their data. The third run tells
    a program that the lens has moved from one that gives another result each time.

    Args:
      f: a function that runs JAX programs and returns a pytree of arrays and numbers. It runs three times and must be
        deterministic; what else it does (printing, host calls) happens three times.
      *args: what it is called with. They are not copied: `f` must neither donate nor change them.
      **lens: the keyword arguments of `record` in its block form: `select`, `select_ys`, `taps`, `sample_every`, ...

    Returns:
      a `Certificate`, which is true if the lens moved no bit.

    Raises:
      TypeError: if a keyword argument is none of those of `record`, or a leaf of the result is no array or number.
      ValueError: if a value in `lens` is not allowed, if results differ in structure, shape or dtype, or if `f`
        deletes its arguments.
      RuntimeError: if a lens is open around the call, or the call is itself traced, as by `jit`.

    >>> import jax, jax.numpy as jnp
    >>> def run(x):
    ...     return jax.lax.scan(lambda c, t: (jnp.sin(c) * t, c), x, jnp.arange(5.0))
    >>> certify(run, 0.5)
    <Certificate: 2 leaves identical; 5 events>
    >>> bool(certify(jax.jit(jax.grad(lambda x: run(x)[0])), 0.5, taps=[on("mul")]))
    True
    """
    if not callable(f):
        raise TypeError(f"f must be a function; got {type(f).__name__}.")
    recording = _recording(lens)
    if _active.active():
        raise RuntimeError("certify runs f without a lens, but one is open around this call; leave that one first.")
    bare = _run(f, args)
    with recording as recorder:
        seen = _run(f, args)
    again = _run(f, args)
    _check_alike(bare, again, "two runs without a lens", "f must be deterministic")
    _check_alike(bare, seen, "the runs without and under the lens", "f must not depend on whether a lens is open")
    moved = _moved(bare, seen)
    first, ulps = moved[0] if moved else (None, None)
    return Certificate(
        identical=not moved,
        leaves=len(bare),
        first=first,
        ulps=ulps,
        different=len(moved),
        events=recorder.report().delivered,
        repeatable=not _moved(bare, again),
    )


def _recording(lens: dict[str, Any]) -> Any:
    """The lens, not yet open."""
    allowed = [name for name in inspect.signature(record).parameters if name != "f"]
    for name in lens:
        if name not in allowed:
            raise TypeError(
                f"certify takes the keyword arguments of jaxtap.record, and {name!r} is none of them. To hand it to f, "
                f"write functools.partial(f, {name}=...). Those of record: {', '.join(allowed)}."
            )
    return record(**lens)


# --- Results -------------------------------------------------------------------------------------------------

# The leaves of a result, each with its name, on the host.
_Leaves = list[tuple[str, Any]]


def _run(f: Callable[..., Any], args: tuple[Any, ...]) -> _Leaves:
    """The leaves of `f(*args)`, copied so that no later run can change them."""
    result = f(*args)
    for path, leaf in jax.tree_util.tree_leaves_with_path(args):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
            raise ValueError(
                f"f must leave its arguments as they are, as it runs three times; it has deleted (donated) args"
                f"{jax.tree_util.keystr(path)}. Wrap it: certify(lambda *args: f(*jax.tree.map(jnp.copy, args)), ...)."
            )
    leaves = [(jax.tree_util.keystr(p) or "result", x) for p, x in jax.tree_util.tree_leaves_with_path(result)]
    return [(name, _on_host(name, leaf)) for name, leaf in leaves]


def _on_host(name: str, leaf: Any) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Tracer):
        raise RuntimeError(
            "certify compares the bits of results, which a traced function does not have yet; call certify outside of "
            "jit, grad, vmap and loops, with the transformed function as f."
        )
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.array(leaf)
    try:
        _ordered(array)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"f must return arrays and numbers; {name} of its result is a {type(leaf).__name__} of dtype "
            f"{array.dtype}. Let f return only what is to be compared."
        ) from error
    return array


def _check_alike(one: _Leaves, other: _Leaves, runs: str, rule: str) -> None:
    """Check that two results differ in nothing but bits."""
    for a, b in itertools.zip_longest(_described(one), _described(other), fillvalue="nothing"):
        if a != b:
            raise ValueError(
                f"{rule}, but in {runs} its results differ in more than bits: where one has {a}, the other has {b}."
            )


def _described(leaves: _Leaves) -> list[str]:
    return [f"{name}: {array.dtype}[{','.join(map(str, array.shape))}]" for name, array in leaves]


def _moved(one: _Leaves, other: _Leaves) -> list[tuple[str, int]]:
    """The leaves that differ, each with its distance."""
    distances = [(name, _distance(a, b)) for (name, a), (_, b) in zip(one, other, strict=True)]
    return [(name, distance) for name, distance in distances if distance]


# --- Bits ----------------------------------------------------------------------------------------------------


def _distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> int:
    """The largest distance between two arrays of one dtype, in units in the last place."""
    a, b = _ordered(one), _ordered(other)
    return int((np.maximum(a, b) - np.minimum(a, b)).max(initial=0))


def _ordered(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Each number's place among all those of its dtype, as uint64. Numbers that differ in a bit differ in place.

    Raises:
      TypeError: if these are no numbers of a dtype that JAX has.
    """
    dtype = array.dtype
    if dtype == jax.dtypes.float0:
        return np.zeros(array.shape, np.uint64)
    if dtype == np.bool_ or jnp.issubdtype(dtype, jnp.unsignedinteger):
        return array.astype(np.uint64)
    if jnp.issubdtype(dtype, jnp.signedinteger):
        return array.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return _ordered(array.reshape(-1, 1).view(np.dtype(f"float{dtype.itemsize * 4}")))
    if not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize > 8:
        raise TypeError(f"{dtype} is no dtype of JAX")
    bits = array.view(np.dtype(f"uint{dtype.itemsize * 8}")).astype(np.uint64)
    if dtype.name in _UNSIGNED_FLOATS:
        return bits
    width = int(jnp.finfo(dtype).bits)
    every, sign = np.uint64((1 << width) - 1), np.uint64(1 << (width - 1))
    return np.where(bits & sign, bits ^ every, bits | sign)
