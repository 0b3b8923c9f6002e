"""Names: what each stands for after the file's imports, and which scope binds it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard, TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Node = TypeVar("_Node", bound=ast.AST)
_Known = TypeVar("_Known")
_AMBIGUOUS = ""
_BUILTINS = frozenset(dir(builtins))
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def words(text: str, prefix: str = "") -> frozenset[str]:
    """The words of a text, each with a prefix."""
    return frozenset(prefix + word for word in text.split())


def is_function(node: object) -> TypeGuard[Function]:
    """Whether a node is a function or a lambda."""
    return isinstance(node, Function)


def parameters(function: Function) -> list[ast.arg]:
    """Every parameter, those that can be given by position first."""
    a = function.args
    starred = [arg for arg in (a.vararg, a.kwarg) if arg is not None]
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *starred]


def positional(function: Function) -> list[str]:
    """The names of the parameters that can be given by position."""
    return [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]


def defaults(function: Function) -> dict[str, ast.expr]:
    """The parameters that have a default, and which."""
    a = function.args
    names = positional(function)
    by_position = dict(zip(names[len(names) - len(a.defaults) :], a.defaults, strict=True))
    by_name = {arg.arg: value for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True) if value is not None}
    return by_position | by_name


def constant(node: ast.AST | None) -> object:
    """The value of a literal constant or a tuple or list of such; None for everything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(constant(element) for element in node.elts)
    return None


def forked(
    branches: Sequence[Sequence[_Node]],
    known: dict[str, _Known],
    follow: Callable[[Sequence[_Node], dict[str, _Known]], None],
) -> list[dict[str, _Known]]:
    """What is known of names after each branch that control leaves at its end, when all start from the same."""
    ends: list[dict[str, _Known]] = []
    for branch in branches:
        end = dict(known)
        follow(branch, end)
        if not (branch and isinstance(branch[-1], _ENDS)):
            ends.append(end)
    return ends


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value given for a keyword in a call."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


class Scopes:
    """The scopes of one file.

    Args:
      tree: the parsed file.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parent: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self._scope: dict[ast.AST, ast.AST] = {}
        self._aliases: dict[str, str] = {}
        self._bound: dict[ast.AST, set[str]] = {}
        self._defs: dict[tuple[ast.AST, str], list[Function]] = {}
        self._visit(tree)
        for node in self.nodes:
            self._collect(node)

    def _visit(self, node: ast.AST) -> None:
        stack: list[ast.AST] = [node]
        while stack:
            at = stack.pop()
            self.nodes.append(at)
            children = list(ast.iter_child_nodes(at))
            # Contexts such as Load are one shared object and have no place.
            children = [c for c in children if not isinstance(c, ast.expr_context | ast.operator | ast.cmpop)]
            for child in children:
                self.parent[child] = at
            stack.extend(reversed(children))

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                self._import(alias.asname or first, alias.name if alias.asname else first)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                self._import(alias.asname or alias.name, f"{base}.{alias.name}")
        elif isinstance(node, ast.arg):
            self._bind(node, node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            self._bind(node, node.id)
            value = self.assigned(node)
            if isinstance(value, ast.Lambda):
                self._defs.setdefault((self.scope(node), node.id), []).append(value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._bind(node, node.name)
            if not isinstance(node, ast.ClassDef):
                self._defs.setdefault((self.scope(node), node.name), []).append(node)

    def _import(self, name: str, full: str) -> None:
        # A name that stands for NumPy here and for jax.numpy there stands for nothing known.
        self._aliases[name] = full if self._aliases.get(name, full) == full else _AMBIGUOUS

    def _bind(self, node: ast.AST, name: str) -> None:
        self._bound.setdefault(self.scope(node), set()).add(name)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module that a node is in; of a definition, the one that it is defined in."""
        if node not in self._scope:
            self._scope[node] = self._find_scope(node)
        return self._scope[node]

    def _find_scope(self, node: ast.AST) -> ast.AST:
        at, child = self.parent.get(node), node
        while at is not None:
            inside = not is_function(at) or self._within(at, child)
            if isinstance(at, ast.ClassDef | ast.Module) or (is_function(at) and inside):
                return at
            at, child = self.parent.get(at), at
        return self.tree

    @staticmethod
    def _within(function: Function, child: ast.AST) -> bool:
        """Whether a child is evaluated when a function is called, and not when it is defined."""
        if isinstance(function, ast.Lambda):
            return child is function.body or isinstance(child, ast.arg | ast.arguments)
        return child in function.body or isinstance(child, ast.arguments)

    def functions_around(self, node: ast.AST) -> Iterator[Function]:
        """The functions that a node is in, the innermost first."""
        at = self.scope(node)
        while not isinstance(at, ast.Module):
            if is_function(at):
                yield at
            at = self.scope(at)

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function that a node is in."""
        return next(self.functions_around(node), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose body a function stands in."""
        at = self.scope(function)
        return at if isinstance(at, ast.ClassDef) else None

    def binds(self, scope: ast.AST, name: str) -> bool:
        """Whether a scope has a variable or parameter of a name, imports left aside."""
        return name in self._bound.get(scope, ())

    def binder(self, node: ast.AST, name: str) -> ast.AST | None:
        """The nearest scope around a node that binds a name."""
        at = self.scope(node)
        first = True
        while True:
            if self.binds(at, name) and (first or not isinstance(at, ast.ClassDef)):
                return at
            if isinstance(at, ast.Module):
                return None
            at, first = self.scope(at), False

    def definitions(self, node: ast.AST, name: str) -> list[Function]:
        """The functions that a name may stand for where a node uses it."""
        scope = self.binder(node, name)
        return self._defs.get((scope, name), []) if scope is not None else []

    def method(self, node: ast.AST, name: str) -> list[Function]:
        """The methods of a name in the class around a node."""
        at: ast.AST = node
        while not isinstance(at, ast.Module):
            at = self.scope(at)
            if isinstance(at, ast.ClassDef):
                return self._defs.get((at, name), [])
        return []

    def name(self, node: ast.AST) -> str | None:
        """The full dotted name of an expression; None where it is not one that was imported or built in."""
        parts: list[str] = []
        at = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if not isinstance(at, ast.Name) or self.binder(node, at.id) is not None:
            return None
        first = self._aliases.get(at.id, at.id if at.id in _BUILTINS else _AMBIGUOUS)
        if first == _AMBIGUOUS:
            return None
        full = ".".join([first, *reversed(parts)])
        if full.startswith(("jax.experimental.pjit.pjit", "jax.pjit")):
            return "jax.jit"
        return full

    def callee(self, node: ast.AST) -> str | None:
        """The full name of what a call calls."""
        return self.name(node.func) if isinstance(node, ast.Call) else None

    def assigned(self, node: ast.AST) -> ast.expr | None:
        """What a name is given, where it is the only target of a plain assignment."""
        at = self.parent.get(node)
        if isinstance(at, ast.Assign) and len(at.targets) == 1 and at.targets[0] is node:
            return at.value
        if isinstance(at, ast.AnnAssign | ast.NamedExpr) and at.target is node:
            return at.value
        return None

    def own(self, scope: ast.AST) -> Iterator[ast.AST]:
        """The nodes of a function or module that run when it runs, in the order of the source.

        What is in functions and classes defined there is left out; their decorators and defaults are not.
        """
        if isinstance(scope, ast.Lambda):
            stack: list[ast.AST] = [scope.body]
        elif isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.ClassDef):
            stack = list(reversed(scope.body))
        else:
            stack = [scope]
        while stack:
            at = stack.pop()
            yield at
            stack.extend(reversed(list(self.now(at))))

    def now(self, node: ast.AST) -> Iterator[ast.AST]:
        """The children of a node that are evaluated when it is."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.decorator_list
            yield from node.args.defaults
            yield from (d for d in node.args.kw_defaults if d is not None)
        elif isinstance(node, ast.Lambda):
            yield from node.args.defaults
            yield from (d for d in node.args.kw_defaults if d is not None)
        elif isinstance(node, ast.ClassDef):
            yield from node.decorator_list
        else:
            yield from ast.iter_child_nodes(node)

    def loop(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """The innermost Python loop whose body runs a node, within the node's own function."""
        scope = self.scope(node)
        at, child = self.parent.get(node), node
        while at is not None and at is not scope:
            if isinstance(at, ast.For | ast.AsyncFor | ast.While) and child in at.body:
                return at
            if isinstance(at, ast.While) and child is at.test:
                return at
            at, child = self.parent.get(at), at
        return None

    def under_if(self, node: ast.AST, top: ast.AST) -> bool:
        """Whether a branch decides if a node runs, below `top`."""
        at, child = self.parent.get(node), node
        while at is not None and at is not top:
            if isinstance(at, ast.If | ast.IfExp) and child is not at.test:
                return True
            if isinstance(at, ast.Try):
                return True
            at, child = self.parent.get(at), at
        return False

    def in_comprehension(self, node: ast.AST) -> bool:
        """Whether a node is in a comprehension of its own function."""
        scope = self.scope(node)
        at = self.parent.get(node)
        while at is not None and at is not scope:
            if isinstance(at, _COMPREHENSIONS):
                return True
            at = self.parent.get(at)
        return False
