"""Python on the host that waits too often, or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._scopes import names_in, words
from jaxtap_command._rules._source import Source
from jaxtap_command._rules._traced import is_known_jitted


def _jitted_calls(source: Source, node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and is_known_jitted(source.scopes, source.jits, inner):
            yield inner


def _hot(source: Source) -> Iterator[Found]:
    for loop in source.scopes.nodes:
        if not isinstance(loop, ast.For | ast.While) or source.staged(loop) or _is_now_and_then(source, loop):
            continue
        made = _results(source, loop)
        if not made:
            continue
        for node in (n for part in loop.body for n in ast.walk(part)):
            waited = _waits_for(source, node)
            if waited is None or waited not in made or source.scopes.loop(node) is not loop:
                continue
            if source.scopes.under_if(node, loop) or _decides(source, node, loop):
                continue
            yield node, f"`{ast.unparse(node)}` waits for the device in each round of the loop in line {loop.lineno}"


def _is_now_and_then(source: Source, loop: ast.For | ast.While) -> bool:
    """Whether a branch decides in which rounds of another loop this one runs, as an evaluation does."""
    outer = source.scopes.loop(loop)
    return outer is not None and source.scopes.under_if(loop, outer)


def _results(source: Source, loop: ast.For | ast.While) -> set[str]:
    """The variables that hold results of compiled functions called in a loop."""
    found: set[str] = set()
    for node in ast.walk(loop):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        if is_known_jitted(source.scopes, source.jits, node.value) and source.scopes.loop(node) is loop:
            for target in node.targets:
                found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def _waits_for(source: Source, node: ast.AST) -> str | None:
    """The variable whose number an expression asks for."""
    if not isinstance(node, ast.Call):
        return None
    if source.name(node.func) in ("float", "int") and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        return node.args[0].id
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and isinstance(node.func.value, ast.Name):
        return node.func.value.id
    return None


def _decides(source: Source, node: ast.AST, loop: ast.For | ast.While) -> bool:
    """Whether the number is needed to go on: a branch or the loop itself depends on it."""
    at = source.scopes.parent.get(node)
    names: set[str] = set()
    while at is not None and at is not loop:
        if isinstance(at, ast.Assign):
            names |= {n.id for t in at.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if isinstance(at, ast.If | ast.While | ast.Assert | ast.IfExp):
            return True
        at = source.scopes.parent.get(at)
    tests = [n.test for n in ast.walk(loop) if isinstance(n, ast.If | ast.While | ast.IfExp | ast.Assert)]
    return any(names & names_in(test) for test in tests)


_CLOCKS = words("time perf_counter monotonic process_time time_ns perf_counter_ns monotonic_ns", prefix="time.")
_WAITS = words(
    "block_until_ready device_get item tolist float int bool print str repr asarray array allclose "
    "assert_allclose effects_barrier savez save info debug format"
)


def _timing(source: Source) -> Iterator[Found]:
    for block in _blocks(source):
        for first, statement in enumerate(block):
            start = _start(source, statement)
            if start is None or source.staged(statement):
                continue
            for last in range(first + 1, len(block)):
                stop = _stop(source, block[last], start)
                if stop is not None:
                    timed = block[first + 1 : last + 1]
                    call = _unblocked(source, timed)
                    if call is not None:
                        yield (
                            stop,
                            f"nothing waits for `{ast.unparse(call.func)}` of line {call.lineno} before this",
                        )
                    break


def _blocks(source: Source) -> Iterator[Sequence[ast.stmt]]:
    for node in source.scopes.nodes:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _start(source: Source, statement: ast.stmt) -> str | None:
    """The variable that a statement sets to the time."""
    if isinstance(statement, ast.Assign) and source.scopes.callee(statement.value) in _CLOCKS:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _stop(source: Source, statement: ast.stmt, start: str) -> ast.BinOp | None:
    """Where a statement takes the start from the time now."""
    for node in ast.walk(statement):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Name)):
            continue
        if source.scopes.callee(node.left) in _CLOCKS and node.right.id == start:
            return node
    return None


def _unblocked(source: Source, timed: Sequence[ast.stmt]) -> ast.Call | None:
    """A compiled function that is called and not waited for."""
    found: ast.Call | None = None
    for statement in timed[:-1]:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assert | ast.If | ast.While):
                return None
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _WAITS:
                return None
        found = next(_jitted_calls(source, statement), found)
    return found


HOT = Rule(
    "J011",
    "a wait for the device in each round",
    "Asking for the number stops Python until the device is done, so the next step is not sent while this one runs.",
    "Keep the arrays and convert them after the loop, or every hundredth round.",
    _hot,
)
TIMING = Rule(
    "J012",
    "a time taken without block_until_ready",
    "A compiled call returns before it is done: the clock shows how long it took to send the work, not to do it.",
    "Wait before reading the clock: `jax.block_until_ready(result)`.",
    _timing,
)
