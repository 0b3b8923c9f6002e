"""One parsed file: what its names stand for, which of its functions JAX traces, which values are arrays."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property

from jaxtap_command._rules._flow import Flow, Level
from jaxtap_command._rules._scopes import Function, Scopes, is_function
from jaxtap_command._rules._traced import Jits, Traced, find_host, find_jits, find_traced


class Source:
    """The source of one file, looked at but never run.

    Args:
      text: the source.

    Attributes:
      scopes: names and the scopes that they live in.
      traced: the functions that JAX traces as the file shows, and how.
      jits: where the file makes compiled functions, and the names that they are given.
    """

    def __init__(self, text: str) -> None:
        with warnings.catch_warnings():
            # An odd escape in a string is no affair of these rules.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            self.scopes = Scopes(ast.parse(text))
        self.jits: Jits = find_jits(self.scopes)
        self.traced: dict[Function, Traced] = find_traced(self.scopes)
        self._host: set[Function] = find_host(self.scopes)

    @property
    def tree(self) -> ast.Module:
        """The whole file."""
        return self.scopes.tree

    def name(self, node: ast.AST) -> str | None:
        """The full dotted name that an expression stands for, as "jax.numpy.log"."""
        return self.scopes.name(node)

    @cached_property
    def _flow(self) -> Flow:
        flow = Flow(self.scopes, self.traced, self._host)
        flow.run()
        return flow

    def level(self, node: ast.AST) -> Level:
        """How sure it is that an expression is an array under tracing."""
        return self._flow.levels.get(node, Level.UNKNOWN)

    def truths(self) -> Iterator[ast.expr]:
        """The arrays under tracing whose truth Python asks for."""
        yield from (test for test in self._flow.truths if test not in self._guarded)

    def staged(self, node: ast.AST) -> bool:
        """Whether a node is in a function that JAX stages out, so that even constants are traced there."""
        return any(f in self._flow.staged for f in self.scopes.functions_around(node))

    def staged_functions(self) -> Iterator[Function]:
        """The functions that JAX stages out, and what is defined in them."""
        yield from self._flow.staged

    def staged_nodes(self) -> Iterator[ast.AST]:
        """Every node that is in a function that JAX stages out, each once; without what may run untraced only."""
        for function in self.staged_functions():
            yield from (node for node in self.scopes.own(function) if node not in self._guarded)

    @cached_property
    def _guarded(self) -> set[ast.AST]:
        """What a branch on None may keep for the calls that do not trace, in functions that are also called so."""
        tests = (
            node
            for function, traced in self.traced.items()
            for node in self.scopes.own(function)
            if isinstance(node, ast.If) and _asks_for_none(node.test) and self._is_also_bare(function, traced)
        )
        return {inner for node in tests for part in (*node.body, *node.orelse) for inner in ast.walk(part)}

    def _is_also_bare(self, function: Function, traced: Traced) -> bool:
        """Whether the file also uses a function without what traces it."""
        if isinstance(function, ast.Lambda) or function in self.jits.decorated:
            return False
        inside = set(ast.walk(traced.by))
        return any(
            isinstance(node, ast.Name) and node.id == function.name and node not in inside
            for node in self.scopes.nodes
            if isinstance(getattr(node, "ctx", None), ast.Load)
            and function in self.scopes.definitions(node, function.name)
        )

    def directly_traced(self, function: ast.AST | None) -> Traced | None:
        """How a function is traced, where the file shows it."""
        return self.traced.get(function) if is_function(function) else None


def _asks_for_none(test: ast.expr) -> bool:
    compares = (node for node in ast.walk(test) if isinstance(node, ast.Compare))
    return any(isinstance(side, ast.Constant) and side.value is None for node in compares for side in node.comparators)
