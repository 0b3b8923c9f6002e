"""The conditions under which a lens may move a last bit (docs/concepts/bits.md), found in the plan of a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fidelity.plans import PRODUCTS, Block, Line, Plan, holds

UNCHANGING = "a part of the step that does not change from step to step"
ONE_TRIP = "a while of one trip"
NESTED_PRODUCT = "a nested loop and a matrix product"

_LOOPS = ("fori", "scan", "while")
_PRODUCTS = (*PRODUCTS, "jnp.dot(a, b) * 0.01 * c + a")


def stated(plan: Plan) -> str:
    """The condition that a program meets, or an empty string."""
    if plan.loop == "while" and plan.steps == 1:
        return ONE_TRIP
    changes = plan.loop != "map"
    # As in the source: the constant, the input, and the state's vectors last.
    given = [False, True, *([changes] if plan.leaves > 1 else []), changes]
    if any(_unchanging(plan.body, given)):
        return UNCHANGING
    nests = any(holds(chain, _LOOPS) for chain in plan.chains)
    return NESTED_PRODUCT if nests and any(holds(chain, _PRODUCTS) for chain in plan.chains) else ""


def _unchanging(chain: tuple[Line | Block, ...], given: list[bool]) -> Iterator[bool]:
    """Whether each part of a chain does not change, given which of the values that it begins with do."""
    values = list(given)
    for line in chain:
        changing = dict(zip("abc", (values[-1 - n % len(values)] for n in line.operands), strict=True))
        if isinstance(line, Line):
            yield from _parts(line.text, changing)
            values.append(_changes(ast.parse(line.text), changing))
        else:
            yield from _unchanging(line.lines, _inside(line.kind, changing))
            values.append(True)


def _inside(kind: str, changing: dict[str, bool]) -> list[bool]:
    """Which of the values that a block's lines begin with change."""
    a, b, c = changing.values()
    if kind in _LOOPS:
        # Its state changes, and so does the input of a scan.
        return [c, b or kind == "scan", True]
    return [c, b, a or (kind == "vmap" and b)]


def _changes(tree: ast.AST, changing: dict[str, bool]) -> bool:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return any(changing.get(name, name == "i") for name in names)


def _parts(text: str, changing: dict[str, bool]) -> Iterator[bool]:
    """Whether each operation of a line is on values alone that do not change, and is on any."""
    bound = {arg.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda) for arg in node.args.args}
    for node in ast.walk(ast.parse(text)):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        is_operation = isinstance(node, (ast.BinOp, ast.Call, ast.UnaryOp, ast.Compare, ast.Subscript))
        yield is_operation and bool(names & changing.keys()) and not names & bound and not _changes(node, changing)
