"""Which functions JAX traces, as far as one file shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from jaxtap_command._rules._scopes import Function, Scopes, constant, defaults, is_function, keyword, positional

JIT = "jax.jit"
# They keep what is no array out of tracing themselves, or let their arguments be changed.
OTHER_JITS = frozenset({"equinox.filter_jit", "flax.nnx.jit", "flax.linen.jit"})
_PARTIAL = "functools.partial"

# Positions and keywords of the functions that a transformation stages out.
LOOPS: dict[str, dict[int, str]] = {
    "jax.lax.scan": {0: "f"},
    "jax.lax.map": {0: "f"},
    "jax.lax.while_loop": {0: "cond_fun", 1: "body_fun"},
    "jax.lax.fori_loop": {2: "body_fun"},
    "jax.lax.associative_scan": {0: "fn"},
}
_BRANCHES: dict[str, dict[int, str]] = {"jax.lax.cond": {1: "true_fun", 2: "false_fun"}}
_HOST: dict[str, dict[int, str]] = {
    "jax.pure_callback": {0: "callback"},
    "jax.debug.callback": {0: "callback"},
    "jax.experimental.io_callback": {0: "callback"},
}

Kind = Literal["jit", "loop", "branch"]


@dataclass(frozen=True)
class Traced:
    """How a function is traced.

    Attributes:
      kind: by jit, as the body of a loop, or as a branch.
      static: the parameters that are not traced.
      by: the call or decorator that traces it.
    """

    kind: Kind
    static: frozenset[str]
    by: ast.AST


@dataclass
class Jits:
    """Where a file makes compiled functions.

    Attributes:
      calls: each call of jit that is given a function.
      names: the names that stand for a compiled function, with the scope that binds each.
      decorated: the functions that are compiled by a decorator, with the decorator.
    """

    calls: list[ast.Call] = field(default_factory=list[ast.Call])
    names: dict[tuple[ast.AST, str], ast.AST] = field(default_factory=dict[tuple[ast.AST, str], ast.AST])
    decorated: dict[Function, ast.expr] = field(default_factory=dict[Function, ast.expr])


def is_jit(name: str | None) -> bool:
    """Whether a full name is that of a jit, JAX's own or another library's."""
    return name == JIT or name in OTHER_JITS


def jit_options(scopes: Scopes, node: ast.expr) -> list[ast.keyword] | None:
    """The options of a decorator that compiles; None where it does not."""
    if scopes.name(node) == JIT:
        return []
    if isinstance(node, ast.Call):
        callee = scopes.callee(node)
        if callee == JIT and not node.args:
            return node.keywords
        if callee == _PARTIAL and node.args and scopes.name(node.args[0]) == JIT:
            return node.keywords
    return None


def _compiles(scopes: Scopes, decorator: ast.expr) -> bool:
    if jit_options(scopes, decorator) is not None or is_jit(scopes.name(decorator)):
        return True
    if isinstance(decorator, ast.Call):
        inner = decorator.args[0] if scopes.callee(decorator) == _PARTIAL and decorator.args else decorator.func
        return is_jit(scopes.name(inner))
    return False


def find_jits(scopes: Scopes) -> Jits:
    """Every place where the file makes a compiled function."""
    jits = Jits()
    for node in scopes.nodes:
        if isinstance(node, ast.Call) and is_jit(scopes.callee(node)) and (node.args or keyword(node, "fun")):
            jits.calls.append(node)
            at = scopes.parent.get(node)
            targets = at.targets if isinstance(at, ast.Assign) and at.value is node else []
            for target in targets:
                if isinstance(target, ast.Name):
                    jits.names[scopes.scope(target), target.id] = node
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if _compiles(scopes, decorator):
                    jits.decorated[node] = decorator
                    jits.names[scopes.scope(node), node.name] = decorator
    return jits


def static_parameters(function: Function, options: list[ast.keyword], skip: int = 0) -> frozenset[str] | None:
    """The parameters that jit's options keep out of tracing; None where the file does not say.

    Args:
      skip: how many leading parameters are bound before jit counts.
    """
    names = positional(function)[skip:]
    found: set[str] = set()
    for option in options:
        if option.arg is None:
            return None
        if option.arg not in ("static_argnums", "static_argnames"):
            continue
        value = constant(option.value)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str):
                found.add(item)
            elif isinstance(item, int) and -len(names) <= item < len(names):
                found.add(names[item])
            elif item is None and not isinstance(option.value, ast.Constant):
                return None
    return frozenset(found)


def _targets(scopes: Scopes, node: ast.expr | None) -> Iterator[tuple[Function, frozenset[str], int]]:
    """The functions that an expression may stand for, with the parameters bound in it, and how many lead."""
    if isinstance(node, ast.Lambda):
        yield node, frozenset(), 0
    elif isinstance(node, ast.Name):
        for function in scopes.definitions(node, node.id):
            yield function, frozenset(), 0
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        for function in scopes.method(node, node.attr):
            if positional(function):
                yield function, frozenset(positional(function)[:1]), 1
    elif isinstance(node, ast.Call) and scopes.callee(node) == _PARTIAL and node.args:
        for function, bound, lead in _targets(scopes, node.args[0]):
            given = len(node.args) - 1 + lead
            by_name = {k.arg for k in node.keywords if k.arg is not None}
            if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
                by_name |= set(positional(function))
            yield function, bound | frozenset(positional(function)[:given]) | by_name, given


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return keyword(call, name)


def find_traced(scopes: Scopes) -> dict[Function, Traced]:
    """The functions that the file shows to be traced, and how."""
    found: dict[Function, Traced] = {}

    def add(function: Function, kind: Kind, static: frozenset[str] | None, by: ast.AST) -> None:
        # A default is not traced: the caller may never give such an argument.
        everything = frozenset(a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg))
        static = everything if static is None else static | frozenset(defaults(function))
        if function in found:
            static = static | found[function].static
        found[function] = Traced(kind, static, by)

    for node in scopes.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                options = jit_options(scopes, decorator)
                if options is not None:
                    static = static_parameters(node, options)
                    if static is not None and scopes.class_of(node) is not None:
                        static = static | frozenset(positional(node)[:1])
                    add(node, "jit", static, decorator)
        elif isinstance(node, ast.Call):
            callee = scopes.callee(node)
            if callee == JIT:
                for function, bound, lead in _targets(scopes, _argument(node, 0, "fun")):
                    static = static_parameters(function, node.keywords, lead)
                    add(function, "jit", None if static is None else static | bound, node)
            places = LOOPS.get(callee or "") or _BRANCHES.get(callee or "") or {}
            for position, name in places.items():
                for function, bound, _ in _targets(scopes, _argument(node, position, name)):
                    add(function, "loop" if callee in LOOPS else "branch", bound, node)
            if callee == "jax.lax.switch" and len(node.args) > 1 and isinstance(node.args[1], ast.List | ast.Tuple):
                for element in node.args[1].elts:
                    for function, bound, _ in _targets(scopes, element):
                        add(function, "branch", bound, node)
    return found


def find_host(scopes: Scopes) -> set[Function]:
    """The functions that run on the host, whatever is around them."""
    found: set[Function] = set()
    for node in scopes.nodes:
        if isinstance(node, ast.Call):
            for position, name in _HOST.get(scopes.callee(node) or "", {}).items():
                for function, *_ in _targets(scopes, _argument(node, position, name)):
                    found.add(function)
    return found


def is_known_jitted(scopes: Scopes, jits: Jits, call: ast.Call) -> bool:
    """Whether a call runs a function that this file compiles."""
    func = call.func
    if isinstance(func, ast.Name):
        scope = scopes.binder(func, func.id)
        return scope is not None and (scope, func.id) in jits.names
    return isinstance(func, ast.Call) and func in jits.calls


def passed_function(scopes: Scopes, call: ast.Call) -> tuple[ast.expr | None, list[Function]]:
    """What a call of jit is given, and the functions that it may be."""
    given = _argument(call, 0, "fun")
    return given, [f for f, *_ in _targets(scopes, given) if is_function(f)]
