"""Effects of Python in functions that Python runs only once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._flow import Level
from jaxtap_command._rules._scopes import Function
from jaxtap_command._rules._source import Source

_GROWS = frozenset({"append", "extend", "insert", "appendleft"})


def _outer(source: Source, function: Function, node: ast.expr) -> bool:
    """Whether an expression is a variable of a scope around a function."""
    if not isinstance(node, ast.Name):
        return False
    binder = source.scopes.binder(node, node.id)
    return binder is not None and binder is not function and binder in _around(source, function)


def _around(source: Source, function: Function) -> list[ast.AST]:
    scopes: list[ast.AST] = [*source.scopes.functions_around(function), source.tree]
    return scopes


def _growth(source: Source) -> Iterator[Found]:
    for function in source.traced:
        for node in source.scopes.own(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            grows = node.func.attr in _GROWS and _outer(source, function, node.func.value)
            if grows and source.level(node.args[-1]) > Level.UNKNOWN:
                yield node, f"`{ast.unparse(node.func.value)}` grows by a tracer, once, while this function is traced"


def _effects(source: Source) -> Iterator[Found]:
    for function, how in source.traced.items():
        declared = {
            name
            for node in source.scopes.own(function)
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        for node in source.scopes.own(function):
            targets: list[ast.expr] = []
            counts = False
            if isinstance(node, ast.Assign) and source.level(node.value) > Level.UNKNOWN:
                targets = node.targets
            elif isinstance(node, ast.AugAssign):
                counts = how.kind == "loop"
                if counts or source.level(node.value) > Level.UNKNOWN:
                    targets = [node.target]
            for target in targets:
                if kept := _kept(source, function, target, declared, counts):
                    yield node, f"`{ast.unparse(target)}` {kept}"


def _kept(source: Source, function: Function, target: ast.expr, declared: set[str], counts: bool) -> str | None:
    """How an assignment outlives the tracing of a function; None where it does not."""
    once = "changes once, while this loop's body is traced, not at each step"
    leaks = "outlives the tracing, and holds a tracer"
    if isinstance(target, ast.Name):
        return (once if counts else leaks) if target.id in declared else None
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        if target.value.id == "self" and (counts or source.scopes.class_of(function) is not None):
            jit_only = source.traced[function].kind == "jit"
            return leaks if jit_only and not counts else once
        return None
    if isinstance(target, ast.Subscript) and _outer(source, function, target.value):
        # What a kernel is given, or a jax.Ref, may be written to.
        return (once if counts else leaks) if _is_container(source, target.value) else None
    return None


def _is_container(source: Source, node: ast.expr) -> bool:
    """Whether a variable is given a list or a dict where it is made, and nothing else anywhere."""
    assert isinstance(node, ast.Name)
    scope = source.scopes.binder(node, node.id)
    made = [
        source.scopes.assigned(n)
        for n in (source.scopes.own(scope) if scope is not None else ())
        if isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Store)
    ]
    return bool(made) and all(
        isinstance(value, ast.List | ast.Dict | ast.ListComp | ast.DictComp)
        or (value is not None and source.scopes.callee(value) in ("list", "dict", "collections.defaultdict"))
        for value in made
    )


def _globals(source: Source) -> Iterator[Found]:
    changed = _changed_globals(source)
    for function, how in source.traced.items():
        if how.kind != "jit":
            continue
        seen: set[str] = set()
        for node in source.scopes.own(function):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or node.id in seen:
                continue
            if node.id in changed and source.scopes.binder(node, node.id) is source.tree:
                where = changed[node.id]
                if function not in source.scopes.functions_around(where):
                    seen.add(node.id)
                    line = getattr(where, "lineno", 0)
                    yield node, f"the value of `{node.id}` is compiled in, and line {line} changes it later"


def _changed_globals(source: Source) -> dict[str, ast.AST]:
    """The module's variables that a function assigns through `global`, and where."""
    found: dict[str, ast.AST] = {}
    for node in source.scopes.nodes:
        if not isinstance(node, ast.Global):
            continue
        function = source.scopes.function(node)
        if function is None:
            continue
        of_module = {name for name in node.names if source.scopes.binds(source.tree, name)}
        for inner in source.scopes.own(function):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and inner.id in of_module:
                found.setdefault(inner.id, inner)
    return found


GROWTH = Rule(
    "J009",
    "a list from outside that grows in a traced function",
    "The body is run by Python once, to trace it: the list gets one tracer, not one value a step, and using it later "
    "raises UnexpectedTracerError.",
    "Return the value: as the second result of a scan's body, which stacks them.",
    _growth,
)
GLOBAL = Rule(
    "J015",
    "a compiled function that reads a global that changes",
    "The global's value at the first call is a constant of the compiled program: later changes are not seen.",
    "Pass it as an argument.",
    _globals,
)
EFFECT = Rule(
    "J018",
    "a Python side effect in a traced function",
    "It happens once, while tracing, not at each step or call, and what it stores is a tracer, which raises "
    "UnexpectedTracerError when used.",
    "Carry the value: take it as an argument and return the new one.",
    _effects,
)
