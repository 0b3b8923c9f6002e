"""Listing the loops of a program, so that a user finds out what to select."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import jax

from jaxtap import _active
from jaxtap._config import View
from jaxtap._intercept import hooks
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._leaves import type_text
from jaxtap._mark import is_output, leaves_of, own_marks
from jaxtap._numbering import Numbering


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of a loop's state or of what its steps return.

    Attributes:
      name: its dotted name, as `select` finds it.
      shape: its shape, for one lane.
      dtype: its dtype.

    >>> import jax
    >>> (loop,) = loops(lambda x: jax.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, x), 0.0)
    >>> loop.carry[0].name, loop.carry[0].shape, str(loop.carry[0].dtype)
    ('x', (), 'float32')
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any

    def __repr__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of a program.

    Attributes:
      path: its address.
      op: `"scan"` or `"while_loop"`.
      source: where its body was written, as `"file.py:42 (function)"`.
      total: trip count, or None where it is not known beforehand.
      internal: whether it is a loop of JAX's own library, which a lens sees with `internals=True`.
      carry: leaves of its state.
      outputs: leaves of what its steps return.

    >>> import jax
    >>> (loop,) = loops(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, x), 0.0)
    >>> loop.path, loop.op, loop.total
    ('scan[0]', 'scan', 3)
    """

    path: str
    op: str
    source: str
    total: int | None
    carry: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    internal: bool = False

    def __repr__(self) -> str:
        trips = "unknown trip count" if self.total is None else f"{self.total} steps"
        lines = [f"{self.path}  {self.source or 'jax'}  {trips}{', internal' if self.internal else ''}"]
        lines += [f"    {i}  {leaf!r}" for i, leaf in enumerate(self.carry)]
        lines += [f"    ys {i}  {leaf!r}" for i, leaf in enumerate(self.outputs)]
        return "\n".join(lines)


class Loops(Sequence[Loop]):
    """The loops of a program, outer ones before inner ones; also by address: `loops["scan[0]"]`.

    >>> import jax
    >>> found = loops(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, x), 0.0)
    >>> len(found), found["scan[0]"].total
    (1, 3)
    """

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = tuple(loops)

    def __len__(self) -> int:
        return len(self._loops)

    @overload
    def __getitem__(self, key: int | str) -> Loop: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Loop, ...]: ...
    def __getitem__(self, key: int | slice | str) -> Loop | tuple[Loop, ...]:
        """A loop by index or address.

        Raises:
          KeyError: if no loop has that address.
        """
        if not isinstance(key, str):
            return self._loops[key]
        for loop in self._loops:
            if loop.path == key:
                return loop
        raise KeyError(f"no loop has the address {key!r}; there are {', '.join(loop.path for loop in self._loops)}")

    def __iter__(self) -> Iterator[Loop]:
        return iter(self._loops)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._loops)) or "no loops"


class _Survey:
    """What stands in for a lens while a program is only looked through."""

    loops_elsewhere = 0


def loops(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Loops:
    """List every loop of `f(*args)`: address, function, source line, trip count, and each leaf's name, shape and dtype.

    The function is traced, not run.

    Args:
      f: any function that JAX can trace.
      *args: example arguments; only shapes and dtypes matter.
      **kwargs: example keyword arguments.

    >>> import jax, jax.numpy as jnp
    >>> def step(state, t):
    ...     return {"position": state["position"] + t}, None
    >>> def run(x):
    ...     return jax.lax.scan(step, {"position": x}, jnp.arange(3.0))
    >>> loops(run, 0.0)["scan[0]"].carry
    (state['position']: float32[],)
    """
    key = _active.Key(View(outputs=View().select))
    jaxpr = surveyed(f, args, kwargs, key)
    found: dict[str, Loop] = {}
    numbering = Numbering()
    for marks in _marked_bodies(jaxpr, key):
        carry = next(mark for mark in marks if not is_output(mark))
        outputs = next((mark for mark in marks if is_output(mark)), None)
        site, path = carry.params["site"], numbering.text(carry.params["path"])
        found.setdefault(
            path,
            Loop(
                path,
                site.op,
                site.source,
                site.total,
                leaves_of_mark(carry),
                leaves_of_mark(outputs) if outputs else (),
                site.internal,
            ),
        )
    return Loops(list(found.values()))


def surveyed(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: Any) -> Any:
    """The jaxpr of `f(*args, **kwargs)`, with the marks of a lens that only looks."""
    survey: Any = _Survey()
    taps = bool(key.view.taps)
    hooks.acquire(taps)
    _active.enter(key, survey)
    try:
        return jax.make_jaxpr(f)(*args, **kwargs)
    finally:
        _active.leave(key, survey)
        hooks.release(taps)


def leaves_of_mark(mark: Any) -> tuple[Leaf, ...]:
    """The leaves that a mark stands beside, with the shapes of one lane."""
    names, mapped = mark.params["site"].names, mark.params["layers"]
    shapes = [list(v.aval.shape) for v in leaves_of(mark)]
    for _, dims in reversed(mapped):
        for shape, dim in zip(shapes, dims, strict=False):
            if dim is not None:
                del shape[dim]
    dtypes = [v.aval.dtype for v in leaves_of(mark)]
    return tuple(Leaf(n, tuple(s), d) for n, s, d in zip(names, shapes, dtypes, strict=True))


def _marked_bodies(jaxpr: Any, key: Any) -> Iterator[list[Any]]:
    """The marks of each loop, outer loops before inner ones."""
    for eqn in inner(jaxpr).eqns:
        for sub in subjaxprs(eqn):
            own = [mark for mark in own_marks(sub) if key in mark.params["lenses"]]
            if own:
                yield own
            yield from _marked_bodies(sub, key)
