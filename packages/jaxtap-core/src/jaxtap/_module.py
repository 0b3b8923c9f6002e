"""Reading a lowered program: its functions, and what lies in an operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.interpreters import mlir


def called(call: Any) -> str:
    """The name of the function that a call calls."""
    return mlir.ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def function(operation: Any, name: str) -> Any:
    """The function of the module around an operation that has a name; None if there is none."""
    module = operation
    while module.parent is not None:
        module = module.parent.operation
    for each in module.regions[0].blocks[0].operations:
        named = each.operation.attributes
        if "sym_name" in named and mlir.ir.StringAttr(named["sym_name"]).value == name:
            return each.operation
    return None


def blocks(operation: Any) -> Iterator[Any]:
    """Every block in an operation, at any depth."""
    for region in operation.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                yield from blocks(inner.operation)


def inside(operation: Any) -> Iterator[Any]:
    """Every operation in another, at any depth."""
    return (each.operation for block in blocks(operation) for each in block.operations)


def is_whole(block: Any) -> bool:
    """Whether a block has its last operation, which returns."""
    operations = block.operations
    return len(operations) > 0 and operations[len(operations) - 1].operation.name.endswith(".return")
