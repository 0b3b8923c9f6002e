"""Reading a value in the middle of a compiled program without touching it.

A host call that uses a value makes that value one that XLA may not fuse into its consumers, and the result moves
by a bit. So the few operations that lead to the value are written out a second time, in a branch that XLA cannot
tell is always taken; the host call stands in that branch, on the second value. What XLA keeps as a whole anyway
is not done twice, but read as it is; when all of the program is there, what no result needs is done in the branch
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.interpreters import mlir

from jaxtap._afterwards import Afterwards
from jaxtap._idle import Idle
from jaxtap._module import CALL, blocks, holds, is_whole, with_inner

# Set on what reads a value until the program is whole. JAX moves operations between programs and runs passes that
# erase some, so no operation is kept from here to there.
_READING = "jaxtap_reading"

# Their results are not fused into what uses them, and doing them twice would cost.
_KEPT = (
    "stablehlo.while",
    "stablehlo.case",
    "stablehlo.if",
    "stablehlo.custom_call",
    "stablehlo.dot_general",
    "stablehlo.dot",
    "stablehlo.convolution",
    "stablehlo.fft",
    "stablehlo.sort",
    "stablehlo.cholesky",
    "stablehlo.triangular_solve",
    "stablehlo.rng_bit_generator",
    "stablehlo.all_reduce",
    "stablehlo.all_gather",
    "stablehlo.collective_permute",
    "mpmd.call",
)

# Elements of a result that is worth not being made twice.
_LARGE = 1 << 14

# XLA turns a product whose one use is one of these around itself, which a second use would keep it from.
_TURNED = ("stablehlo.transpose", "stablehlo.reshape")


def isolated(ctx: Any, values: Sequence[Any], read: Callable[..., None]) -> list[Any]:
    """Lower `read(*values)`, which sends something, apart from the program around it.

    Args:
      ctx: the lowering context.
      values: values of the module that is being lowered.
      read: a traced function without results.
    """

    def run(*args: Any) -> list[Any]:
        lax.cond(lax.optimization_barrier(jnp.bool_(True)), lambda: read(*args), lambda: None)
        return []

    block = mlir.ir.InsertionPoint.current.block
    already = len(block.operations)
    ctx = ctx.replace(avals_in=ctx.avals_in[: len(values)])
    mlir.lower_fun(run, multiple_results=True)(ctx, *values)
    for index in range(already, len(block.operations)):
        operation = block.operations[index]
        if operation.operation.name == "stablehlo.case":
            for region in operation.regions:
                _repeat(region.blocks[0], block, _is_kept)
            operation.operation.attributes[_READING] = mlir.ir.UnitAttr.get(operation.operation.context)
            readings.put(ctx.module_context.module)
    return []


def _finish(modules: Sequence[Any]) -> None:
    """Let readings do themselves what no result of the program needs."""
    for module in {id(module): module for module in modules}.values():
        with module.context, mlir.ir.Location.unknown():
            for block in list(blocks(module.operation)):
                own = [each.operation for each in block.operations if _READING in each.operation.attributes]
                for reading in own:
                    del reading.attributes[_READING]
                if own and is_whole(block):
                    _do_themselves(own, block)


def _do_themselves(own: Sequence[Any], block: Any) -> None:
    """Write out again, in the branches of the readings in a block, what leads to the values that they read."""
    idle = Idle(block, own)

    def is_kept(operation: Any, block: Any) -> bool:
        return _unturned(operation, block) not in idle and _is_kept(operation, block)

    for reading in own:
        for region in reading.regions:
            _repeat(region.blocks[0], block, is_kept)


# The programs, of those that are being lowered, in which something reads a value.
readings = Afterwards(_finish)


def _repeat(branch: Any, block: Any, is_kept: Callable[[Any, Any], bool]) -> None:
    """Write out again, at the head of a branch, what leads to the values of `block` that it uses."""
    own = [operation.operation for operation in branch.operations]
    used = [v for operation in own for v in _operands(operation) if _is_made_in(v, block)]
    again: dict[Any, Any] = {}
    point = mlir.ir.InsertionPoint.at_block_begin(branch)
    for operation in _leading_to(used, block, is_kept):
        copy = operation.clone(ip=point).operation
        _exchange(copy, again)
        again.update(zip(operation.results, copy.results, strict=True))
    for operation in own:
        _exchange(operation, again)


def _operands(operation: Any) -> Iterator[Any]:
    """Every operand of an operation, and of those in it."""
    return (operand for each in with_inner(operation) for operand in each.operands)


def _is_made_in(value: Any, block: Any) -> bool:
    """Whether an operation of `block` itself makes a value."""
    owner = value.owner
    return not isinstance(owner, mlir.ir.Block) and owner.operation.block == block


def _is_kept(operation: Any, block: Any) -> bool:
    """Whether the result of an operation is read as it is."""
    operation = _unturned(operation, block)
    if operation.name == CALL:
        # XLA writes a function out in its caller, unless that holds something that it keeps as a whole.
        return holds(operation, {}, _is_heavy)
    if operation.name in _KEPT:
        return not _is_scalar(operation)
    return _is_materialised(operation, block)


def _is_heavy(operation: Any) -> bool:
    """Whether XLA keeps an operation as a whole."""
    return operation.name in _KEPT and not _is_scalar(operation)


def _unturned(operation: Any, block: Any) -> Any:
    """What makes the elements that an operation only puts in another order."""
    while operation.name in _TURNED and _is_made_in(operation.operands[0], block):
        operation = operation.operands[0].owner.operation
    return operation


def _is_materialised(operation: Any, block: Any) -> bool:
    """Whether XLA gives the result of an operation memory of its own, so that another use changes nothing.

    It does where the result is used more than once and a convolution, or a product of whole matrices, is among the
    uses. Of smaller results this is not asked: XLA rewrites small products, and doing a little twice costs nothing.
    """
    if len(operation.results) != 1 or _size(operation) < _LARGE:
        return False
    users = _users(operation)
    return len(users) > 1 and any(_is_apart(user, block) for user in users)


def _users(operation: Any) -> list[Any]:
    """The operations that use the one result of another, each once."""
    found: list[Any] = []
    for use in operation.results[0].uses:
        if use.owner.operation not in found:
            found.append(use.owner.operation)
    return found


def _is_apart(operation: Any, block: Any) -> bool:
    """Whether XLA never fuses an operation with what leads to its operands."""
    if operation.block != block:
        return False
    if operation.name == "stablehlo.convolution":
        return True
    return operation.name == "stablehlo.dot_general" and all(len(_shape(v)) == 2 for v in operation.operands)


def _shape(value: Any) -> list[int]:
    return list(mlir.ir.RankedTensorType(value.type).shape)


def _size(operation: Any) -> int:
    """How many elements the one result of an operation has."""
    return math.prod(_shape(operation.results[0]))


def _is_scalar(operation: Any) -> bool:
    """Whether an operation is a product of two vectors: a sum to XLA, which it fuses with others."""
    dot = operation.name in ("stablehlo.dot", "stablehlo.dot_general")
    return dot and _size(operation) <= 1


def _leading_to(values: Sequence[Any], block: Any, is_kept: Callable[[Any, Any], bool]) -> list[Any]:
    """The operations that lead to some values, in order, back to what is kept or the program is given."""
    found: list[Any] = []

    def visit(value: Any) -> None:
        if not _is_made_in(value, block):
            return
        operation = value.owner.operation
        if is_kept(operation, block) or operation in found:
            return
        for operand in _operands(operation):
            visit(operand)
        found.append(operation)

    for value in values:
        visit(value)
    return found


def _exchange(operation: Any, again: dict[Any, Any]) -> None:
    """Let an operation, and those in it, use the second values."""
    for each in with_inner(operation):
        for i, operand in enumerate(each.operands):
            if operand in again:
                each.operands[i] = again[operand]
