"""Reading a lowered program: its functions, and what lies in an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jax.interpreters import mlir

CALL = "func.call"


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


def holds(call: Any, known: dict[str, bool], is_such: Callable[[Any], bool]) -> bool:
    """Whether a function that is called, or one that it calls, holds an operation of some kind, or is not there.

    Args:
      call: the call.
      known: what was found before, by name.
      is_such: whether an operation that is no call is of that kind.
    """
    name = called(call)
    if name not in known:
        # A function that calls itself is none of JAX's.
        known[name] = True
        body = function(call, name)
        known[name] = body is None or any(
            holds(each, known, is_such) if each.name == CALL else is_such(each) for each in inside(body)
        )
    return known[name]


def inside(operation: Any) -> Iterator[Any]:
    """Every operation in another, at any depth, each before those in it."""
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                yield from with_inner(each.operation)


def with_inner(operation: Any) -> Iterator[Any]:
    """An operation, and every one in it."""
    yield operation
    yield from inside(operation)


def blocks(operation: Any) -> Iterator[Any]:
    """Every block in an operation, at any depth."""
    return (block for each in with_inner(operation) for region in each.regions for block in region.blocks)


def returns(operation: Any) -> bool:
    """Whether it is the last operation of a block, which returns."""
    return operation.name.endswith(".return")


def is_whole(block: Any) -> bool:
    """Whether a block has its last operation."""
    operations = block.operations
    return len(operations) > 0 and returns(operations[len(operations) - 1].operation)
