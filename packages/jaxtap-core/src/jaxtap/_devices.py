"""Crossings of programs that run on several devices: which of them call the host, and what each has to tell.

A program that is partitioned automatically (`jit` over sharded arrays) is one program: what it sends is whole, and one
device calls; or, with `shards=True`, each device calls with the shard that it has, and nothing is gathered. Inside of
`shard_map` each device has a program of its own, and calls for itself.

No function of JAX's says for a primitive of one's own which devices call, so that is written into the module.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.interpreters import mlir

from jaxtap._emit import emit_p
from jaxtap._shards import FromFirst, FromShards, lane_arrays, lane_stride

# A value of the module that is being lowered, with its shape and dtype.
Operand = tuple[Any, Any]

# Where a host call is one operation of the module, which can be told who makes it. On others it is several.
_RAW = ("cpu", "cuda", "rocm")
# Which devices call, as Shardy and as the partitioner before it are told.
_ONE_DEVICE = ("#sdy.sharding_per_value<[<mesh<[], device_ids=[0]>, []>]>", "{maximal device=0}")
_EACH_DEVICE = ("#sdy.sharding_per_value<[<mesh<[]>, []>]>", "{manual}")


def is_partitioned(ctx: Any) -> bool:
    """Whether XLA partitions the program that is being lowered over several devices."""
    axes = ctx.module_context.axis_context
    if isinstance(axes, mlir.SPMDAxisContext):
        return bool(_automatic(axes))
    return axes.num_devices > 1


def device_count(ctx: Any) -> int:
    """How many devices the program that is being lowered runs on."""
    axes = ctx.module_context.axis_context
    return axes.mesh.size if isinstance(axes, mlir.SPMDAxisContext) else axes.num_devices


def _automatic(axes: Any) -> list[str]:
    """The axes of the mesh around a `shard_map` that are left to XLA."""
    return [name for name in axes.mesh.axis_names if name not in axes.manual_axes and axes.mesh.shape[name] > 1]


def _lower(ctx: Any, *values: Any, entry: Any) -> list[Any]:
    axes = ctx.module_context.axis_context
    operands = list(zip(values, ctx.avals_in, strict=True))
    if process := jax.process_index():
        entry = dataclasses.replace(entry, process=process)
    manual = isinstance(axes, mlir.SPMDAxisContext)
    if device_count(ctx) == 1:
        # The method itself: Python calls that faster than an object that has it.
        _call(ctx, operands, entry.__call__)
    elif ctx.module_context.platforms[0] not in _RAW:
        _through_debug_callback(ctx, values, entry)
    elif manual and not _automatic(axes):
        _call(ctx, [_partition_id(), *operands], FromShards(entry, 1), _EACH_DEVICE)
    elif manual and not _has_shardy():
        _through_debug_callback(ctx, values, entry)
    elif entry.shards:
        index = _index_in_group(ctx) if manual else [_index(axes.num_devices)]
        numbers = [_lane_numbers(ctx, operands[at], lanes, lead) for at, lanes, lead in lane_arrays(entry)]
        receive = FromShards(entry, len(index), partitioned=True)
        _call(ctx, [*index, *operands, *numbers], receive, shards=True)
    elif manual:
        _from_each_group(ctx, values, entry)
    else:
        _whole(ctx, operands, entry)
    return []


mlir.register_lowering(emit_p, _lower)


def _has_shardy() -> bool:
    return bool(getattr(jax.config, "jax_use_shardy_partitioner", True))


def _call(
    ctx: Any,
    operands: Sequence[Operand],
    receive: Callable[..., Any],
    where: tuple[str, str] | None = None,
    shards: bool = False,
) -> None:
    """A call of the host.

    Args:
      ctx: the lowering context.
      operands: what is sent.
      receive: what is called.
      where: the sharding that says which devices call.
      shards: each device calls with its own shards.
    """
    avals = [aval for _, aval in operands]
    ctx = ctx.replace(avals_in=avals, avals_out=[])
    values = [value for value, _ in operands]
    mlir.emit_python_callback(ctx, receive, None, values, avals, [], has_side_effect=True, partitioned=shards)
    if where is not None:
        operations = mlir.ir.InsertionPoint.current.block.operations
        attributes, (shardy, before) = operations[len(operations) - 1].attributes, where
        if _has_shardy():
            attributes["sdy.sharding"] = mlir.ir.Attribute.parse(shardy)
        else:
            attributes["mhlo.sharding"] = mlir.ir.StringAttr.get(before)


def _operation(name: str, operands: Sequence[Any], kind: Any, **attributes: str) -> Any:
    parsed = {key: mlir.ir.Attribute.parse(text) for key, text in attributes.items()}
    return mlir.ir.Operation.create(name, results=[kind], operands=list(operands), attributes=parsed).result


def _sharding(mesh: Sequence[tuple[str, int]], dims: Sequence[str]) -> str:
    """A sharding as it is written in a module: for each axis of an array, the axis of the mesh, or none."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh)
    each = ", ".join(f'{{"{name}"}}' if name else "{}" for name in dims)
    return f"#sdy.sharding<mesh<[{axes}]>, [{each}]>"


# --- The whole value, once -----------------------------------------------------------------------------------


def _whole(ctx: Any, operands: Sequence[Operand], entry: Any) -> None:
    """A call with whole values: of one device, or where there are several processes of one in each."""
    operands = [(_gathered(value, aval.ndim), aval) for value, aval in operands]
    if jax.process_count() == 1:
        _call(ctx, operands, entry.__call__, _ONE_DEVICE)
    else:
        # Which devices belong to which process is not known here.
        num_devices = ctx.module_context.axis_context.num_devices
        _call(ctx, [_index(num_devices), *operands], FromFirst(entry), shards=True)


def _gathered(value: Any, rank: int) -> Any:
    """A value that each device has whole. The barrier keeps that from deciding how the program shards its own."""
    if not _has_shardy():
        return value
    value = _operation("sdy.propagation_barrier", [value], value.type, allowed_direction="0 : i32")
    return _operation("sdy.sharding_constraint", [value], value.type, sharding=_sharding([("jaxtap", 1)], [""] * rank))


def _from_each_group(ctx: Any, values: Sequence[Any], entry: Any) -> None:
    """Where `shard_map` leaves some axes to XLA: whole values over those, once for each place on the others."""
    axes = ctx.module_context.axis_context
    automatic = _automatic(axes)

    def in_each_device(*values: Any) -> tuple[()]:
        first = sum(lax.axis_index(name) for name in automatic) == 0
        lax.cond(first, lambda: emit_p.bind(*values, entry=entry), lambda: [])
        return ()

    def run(*values: Any) -> list[Any]:
        specs = jax.sharding.PartitionSpec()
        jax.shard_map(in_each_device, in_specs=specs, out_specs=(), axis_names=set(automatic), check_vma=False)(*values)
        return []

    avals = [ShapedArray(aval.shape, aval.dtype) for aval in ctx.avals_in]
    with jax.sharding.use_abstract_mesh(_manual_mesh(axes)):
        mlir.lower_fun(run, multiple_results=True)(ctx.replace(avals_in=avals), *values)


def _manual_mesh(axes: Any) -> Any:
    """The mesh around a `shard_map`, as it is within."""
    manual = dict.fromkeys(axes.manual_axes, jax.sharding.AxisType.Manual)
    return axes.mesh.abstract_mesh.update_axis_types(manual)


# --- Each device for itself ----------------------------------------------------------------------------------


def _int32(value: Any) -> Operand:
    array = np.asarray(value, np.int32)
    return mlir.ir_constant(array), ShapedArray(array.shape, array.dtype)


def _partition_id() -> Operand:
    """The index of a device, where each has a program of its own."""
    ir = mlir.ir
    unsigned = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(32))
    return _operation("stablehlo.partition_id", [], unsigned), ShapedArray((), jnp.uint32)


def _index(num_devices: int) -> Operand:
    """The index of a device, where XLA partitions the program: all indices, of which each device has its own."""
    value, aval = _int32(np.arange(num_devices))
    if not _has_shardy():
        target = {"call_target_name": '"Sharding"', "mhlo.sharding": f'"{{devices=[{num_devices}]<=[{num_devices}]}}"'}
        return _operation("stablehlo.custom_call", [value], value.type, **target), aval
    own = _sharding([("jaxtap", num_devices)], ["jaxtap"])
    return _operation("sdy.sharding_constraint", [value], value.type, sharding=own), aval


def _index_in_group(ctx: Any) -> list[Operand]:
    """The index of a device in two parts, where XLA partitions the program along some axes of a mesh."""
    axes = ctx.module_context.axis_context
    names, sizes = axes.mesh.axis_names, [axes.mesh.shape[name] for name in axes.mesh.axis_names]
    strides = {name: math.prod(sizes[i + 1 :]) for i, name in enumerate(names)}
    automatic = _automatic(axes)
    grid = np.indices([axes.mesh.shape[name] for name in automatic])
    value, aval = _int32(sum(strides[name] * at for name, at in zip(automatic, grid, strict=True)))
    own = _sharding(list(zip(names, sizes, strict=True)), automatic)
    value = _operation("sdy.sharding_constraint", [value], value.type, sharding=own)

    def place() -> list[Any]:
        return [jnp.int32(sum(lax.axis_index(name) * strides[name] for name in names if name in axes.manual_axes))]

    with jax.sharding.use_abstract_mesh(_manual_mesh(axes)):
        (found,) = mlir.lower_fun(place, multiple_results=True)(ctx.replace(avals_in=[]))
    found = found[0] if isinstance(found, (list, tuple)) else found
    return [(value, aval), (found, ShapedArray((), jnp.int32))]


def _lane_numbers(ctx: Any, operand: Operand, lanes: tuple[int, ...], lead: int) -> Operand:
    """Of an array over lanes, the number of the lane at each place, sharded as the array is.

    A choice between two arrays is sharded as those are, and XLA cannot know how it turns out.

    Args:
      ctx: the lowering context.
      operand: the array.
      lanes: size of each mapped axis.
      lead: how many axes are before those.
    """
    value, aval = operand
    plain = ShapedArray(aval.shape, aval.dtype)

    def number(value: Any) -> list[Any]:
        axes = range(len(lanes))
        own = sum(lax.broadcasted_iota(jnp.int32, value.shape, lead + i) * lane_stride(lanes, i) for i in axes)
        never = lax.optimization_barrier(jnp.bool_(False))
        real = value.real if jnp.issubdtype(value.dtype, jnp.complexfloating) else value
        return [lax.select_n(never, own, real.astype(jnp.int32))]

    (found,) = mlir.lower_fun(number, multiple_results=True)(ctx.replace(avals_in=[plain]), value)
    found = found[0] if isinstance(found, (list, tuple)) else found
    return found, ShapedArray(aval.shape, jnp.int32)


def _through_debug_callback(ctx: Any, values: Sequence[Any], entry: Any) -> None:
    """JAX's own callback, which does not say which device calls: for what is left."""

    def receive(*arrays: Any) -> None:
        entry(*map(np.asarray, arrays))

    def place(*args: Any) -> list[Any]:
        jax.debug.callback(receive, *args)
        return []

    mlir.lower_fun(place, multiple_results=True)(ctx, *values)
