"""What a lowered program does for marks alone.

A marked value that nothing else uses keeps what leads to it in the program: what XLA keeps as a whole is read as it is,
and so is done beside the program, which shares operands with it. XLA fuses those otherwise than without the mark, and a
bit may move. When all of the program is there, it can be told what no result needs, and that is done in the branch that
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.interpreters import mlir

from jaxtap._module import CALL, holds, returns, with_inner

# They do more than make a result, or all devices must do them together.
_ACTS = (
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.infeed",
    "stablehlo.outfeed",
    "stablehlo.recv",
    "stablehlo.reduce_scatter",
    "stablehlo.rng",
    "stablehlo.send",
)
_PURE = ("stablehlo.", "chlo.")
_SIDE_EFFECT = "has_side_effect"


class Idle:
    """Which operations of a block of a lowered program no result needs.

    Args:
      block: the body of a function.
      readings: the operations in it that read marked values, and do nothing else.
    """

    def __init__(self, block: Any, readings: Sequence[Any]) -> None:
        self._acting: dict[str, bool] = {}
        self._needed: set[Any] = set()
        reading = set(readings)
        # What uses an operation comes after it.
        for each in reversed(list(block.operations)):
            operation = each.operation
            if operation in reading:
                continue
            users = (_in_block(use.owner.operation, block) for result in operation.results for use in result.uses)
            if returns(operation) or self._acts(operation) or any(user in self._needed for user in users):
                self._needed.add(operation)

    def __contains__(self, operation: Any) -> bool:
        return operation not in self._needed

    def _acts(self, operation: Any) -> bool:
        """Whether an operation, or one in it, does more than make a result."""
        return any(map(self._acts_itself, with_inner(operation)))

    def _acts_itself(self, operation: Any) -> bool:
        name = operation.name
        if returns(operation):
            return False
        if name == CALL:
            return holds(operation, self._acting, self._acts_itself)
        if name == "stablehlo.custom_call":
            found = operation.attributes
            return _SIDE_EFFECT in found and mlir.ir.BoolAttr(found[_SIDE_EFFECT]).value
        return name in _ACTS or not name.startswith(_PURE)


def _in_block(operation: Any, block: Any) -> Any:
    """The operation of a block that another is, or lies in; None if it lies in none."""
    while operation is not None and operation.block != block:
        parent = operation.parent
        operation = None if parent is None else parent.operation
    return operation
