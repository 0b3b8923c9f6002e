"""Equations and values outside of any loop: marked where they are bound, and sent when they are lowered or run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap import _active
from jaxtap._announce import announce
from jaxtap._around import Around
from jaxtap._backward import identity_p, is_differentiable
from jaxtap._devices import is_partitioned
from jaxtap._equations import site_of, wanting
from jaxtap._guard import Guard
from jaxtap._isolate import isolated
from jaxtap._jaxprs import as_function, is_entered, is_jaxpr
from jaxtap._mark import POINTS, Root, Site, has_points, mark_p, without_points
from jaxtap._provenance import (
    Place,
    caller_of,
    caller_outside,
    in_lowering,
    is_discarded,
    is_recomputation,
    place,
)
from jaxtap._retype import on_untyped

_guard = Guard()


def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Primitive.bind`, marking the outputs of tapped primitives."""

    def bind(self: Any, *args: Any, **params: Any) -> Any:
        if in_lowering():
            # What JAX has traced for a program may serve its lowering rules, too. That is no one's program.
            return original(self, *args, **(params if _writing_out.here else _silenced(params)))
        if not is_entered(self.name):
            params = _silenced(params)
        keys = wanting(self.name, _active.active())
        if not keys:
            return original(self, *args, **params)
        found = None if is_recomputation() else place(1)
        outs = original(self, *args, **params)
        if found is not None:
            try:
                leaves = list(outs) if self.multiple_results else [outs]
                root = Root(self.name, found.identity, point=True)
                _bind(leaves, site_of(self.name, found.source, len(leaves)), root, keys)
            except Exception as error:  # noqa: BLE001 - an equation that cannot be marked runs unmarked
                _guard.failed("marking an equation", error)
        return outs

    return bind


def _silenced(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an equation without marks of single points in its jaxprs."""
    if not any(is_jaxpr(value) and has_points(value) for value in params.values()):
        return params
    return {name: without_points(value) if is_jaxpr(value) else value for name, value in params.items()}


class _WritingOut(threading.local):
    here = False


_writing_out = _WritingOut()


def written_out(jaxpr: Any) -> Callable[..., list[Any]]:
    """A function that evaluates a jaxpr while a program is lowered, marks and all."""
    run = as_function(jaxpr)

    def evaluate(*args: Any) -> list[Any]:
        before, _writing_out.here = _writing_out.here, True
        try:
            return run(*args)
        finally:
            _writing_out.here = before

    return evaluate


def _bind(leaves: list[Any], site: Site, root: Root, keys: tuple[Any, ...]) -> None:
    mark_p.bind(*leaves, site=site, path=(root,), lenses=keys, layers=())


def mark(name: str, value: Any, *, backward: bool = False) -> Any:
    """Name a value in the middle of a program, so that any lens sees it. Returns it unchanged.

    Without an open lens it adds nothing to the program: no equation, no cost. Under one, each time that it is
    reached is an event of kind `"mark"`, with an address such as `"scan[0]/residual[0]"`, the step of the loop
    around (-1 outside of any), and the lane under `vmap`. `marks=` and `where=` of the lens choose among marks.
    Put it into a library to make it observable for good.

    Args:
      name: what the value is called; may not hold `/`, `[` or `]`.
      value: any pytree of arrays. Its events hold the same pytree.
      backward: a lens with `backward=True` also sees the cotangent of the value in the gradient pass, as an event of
        kind `"backward"`. For that, the value that is returned must be used in place of the one given.

    Returns:
      `value` itself.

    Raises:
      ValueError: if the name is empty or holds one of those characters.

    >>> import jax, jax.numpy as jnp
    >>> def newton(x, _):
    ...     residual = mark("residual", x * x - 2.0)
    ...     return x - residual / (2.0 * x), None
    >>> with record(select=lambda leaves: ()) as rec:
    ...     root, _ = jax.lax.scan(newton, 1.0, None, length=3)
    >>> [(e.path, e.step, round(float(e.value), 4)) for e in rec.events if e.kind == "mark"]
    [('scan[0]/residual[0]', 0, -1.0), ('scan[0]/residual[0]', 1, 0.25), ('scan[0]/residual[0]', 2, 0.0069)]
    """
    if not hasattr(name, "isidentifier") or not name or any(c in name for c in "/[]"):
        raise ValueError(f"the name of a mark must be a non-empty string without '/', '[' or ']'; got {name!r}.")
    keys = tuple(key for key in _active.active() if key.view.marks and not key.view.hooks)
    if not keys or in_lowering() or is_recomputation() or is_discarded():
        return value
    return _marked(name, value, keys, caller_of(1), backward)


def hook_settings(hook: str) -> tuple[Any, ...]:
    """How each lens that sees this thread has a hook of some name, outermost first; empty where none has it.

    A replaced function asks this first, and is the original where there is nothing.
    """
    if in_lowering():
        return ()
    return tuple(how for key in _active.active() for name, how in key.view.hooks if name == hook)


def mark_for(
    hook: str,
    name: str,
    value: Any,
    *,
    outside: Sequence[str] = (),
    backward: bool = False,
    where: Callable[[Any], bool] | None = None,
) -> Any:
    """As `mark`, but seen only by the lenses that have a hook of some name, and told apart by who called.

    Args:
      hook: the name of the hook.
      name: what the value is called.
      value: any pytree of arrays.
      outside: packages whose code is no one's: the place that counts is the first one outside of them.
      backward: as in `mark`.
      where: a predicate over how a lens has the hook: those for which it is false do not see it.

    Returns:
      `value` itself.
    """
    keys = tuple(
        key
        for key in _active.active()
        if any(hook == own and (where is None or where(how)) for own, how in key.view.hooks)
    )
    if not keys or in_lowering() or is_recomputation() or is_discarded():
        return value
    return _marked(name, value, keys, caller_outside(1, outside), backward)


def _marked(name: str, value: Any, keys: tuple[Any, ...], caller: Place, backward: bool) -> Any:
    with_paths, treedef = jax.tree_util.tree_flatten_with_path(value)
    names = tuple(f"{name}{jax.tree_util.keystr(path)}" for path, _ in with_paths)
    site = Site(name, "mark", caller.source, names, None, treedef)
    _bind([leaf for _, leaf in with_paths], site, Root(name, caller.identity, point=True), keys)
    asking = tuple(key for key in keys if key.view.backward is not None)
    return _passed_on(value, site, caller.identity, asking) if backward and asking else value


def _passed_on(value: Any, site: Site, identity: str, keys: tuple[Any, ...]) -> Any:
    """A value whose cotangent is marked, if it is differentiated."""
    leaves, treedef = jax.tree_util.tree_flatten(value)
    chosen = [i for i, leaf in enumerate(leaves) if is_differentiable(jnp.result_type(leaf))]
    if not chosen:
        return value
    site = dataclasses.replace(site, kind="backward", names=tuple(site.names[i] for i in chosen), treedef=None)
    path = (Root(site.op, identity, point=True),)
    passed = identity_p.bind(*(leaves[i] for i in chosen), site=site, path=path, lenses=keys, layers=())
    for i, leaf in zip(chosen, passed, strict=True):
        leaves[i] = leaf
    return jax.tree_util.tree_unflatten(treedef, leaves)


# --- Sending -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _compiled(site: Site, path: Any, lenses: Any, layers: Any) -> Callable[..., Any]:
    return jax.jit(lambda *args: mark_p.bind(*args, site=site, path=path, lenses=lenses, layers=layers))


def run(*args: Any, site: Site, path: Any, lenses: Any, layers: Any) -> list[Any]:
    """A mark that is reached eagerly: its values are all there."""
    if site.kind in POINTS:
        send = _compiled(site, path, lenses, layers)
        # Under `jax.disable_jit()`, what is sent still has to be lowered.
        with jax.disable_jit(False) if jax.config.jax_disable_jit else contextlib.nullcontext():
            send(*args)
    return []


def lower(ctx: Any, *args: Any, **params: Any) -> Any:
    """A mark outside of any realised loop. Within one, that loop sends it."""
    site: Site = params["site"]
    if site.kind not in POINTS:
        return []
    around = Around(partitioned=is_partitioned(ctx))
    return isolated(ctx, args[: len(site.names)], on_untyped(lambda *values: announce(params, values, around)))
