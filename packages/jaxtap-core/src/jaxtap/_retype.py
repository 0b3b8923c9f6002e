"""Types that say how a value is spread over devices, taken off and put on again.

Within `shard_map`, and under a mesh with explicit axes, the type of a value says along which axes of the mesh it
varies or is sharded, and JAX checks that types agree. By the time that a loop is written out anew, those checks are
done. So what jaxtap adds, its counters, buffers and branches, works on values without such types, under no mesh; only
the program's own equations are given back the types that they were traced with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.core import ShapedArray, Tracer
from jax.extend import core as jcore
from jax.interpreters import mlir

retype_p = jcore.Primitive("jaxtap_retype")
retype_p.def_impl(lambda value, **_: value)
retype_p.def_abstract_eval(lambda _, *, aval: aval)
mlir.register_lowering(retype_p, lambda _, value, **__: [value])

_NO_MESH = jax.sharding.AbstractMesh((), ())


def _is_plain(aval: Any) -> bool:
    return not hasattr(aval, "sharding") or aval.sharding.mesh.empty


def untyped(values: Sequence[Any]) -> list[Any]:
    """Values without types of the mesh."""
    return [_untyped(value) for value in values]


def _untyped(value: Any) -> Any:
    aval: Any = jax.typeof(value) if isinstance(value, Tracer) else None
    if aval is None or _is_plain(aval):
        return value
    return retype_p.bind(value, aval=ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type))


def typed(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Values with the types of the mesh that an equation expects."""
    return [v if _is_plain(a) else retype_p.bind(v, aval=a) for v, a in zip(values, avals, strict=True)]


def bind_typed(primitive: Any, values: Sequence[Any], avals: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Bind a primitive of several results as a program does that has types of the mesh, given values without."""
    meshes = [aval.sharding.mesh for aval in avals if not _is_plain(aval)]
    with jax.sharding.use_abstract_mesh(meshes[0]) if meshes else contextlib.nullcontext():
        outs = primitive.bind(*typed(values, avals), **params)
    return untyped(outs)


def stacked(aval: Any, length: int) -> Any:
    """The type of `length` values, one after the other."""
    shape = (length, *aval.shape)
    if _is_plain(aval):
        return ShapedArray(shape, aval.dtype)
    return aval.update(shape=shape, sharding=aval.sharding.update(spec=(None, *aval.sharding.spec)))


def on_untyped(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `run` with untyped values, under no mesh."""

    def call(*values: Any) -> Any:
        there = not jax.sharding.get_abstract_mesh().empty
        with jax.sharding.use_abstract_mesh(_NO_MESH) if there else contextlib.nullcontext():
            return run(*untyped(values))

    return call
