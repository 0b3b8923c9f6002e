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
        yield from self._flow.truths

    def staged(self, node: ast.AST) -> bool:
        """Whether a node is in a function that JAX stages out, so that even constants are traced there."""
        return any(f in self._flow.staged for f in self.scopes.functions_around(node))

    def staged_functions(self) -> Iterator[Function]:
        """The functions that JAX stages out, and what is defined in them."""
        yield from self._flow.staged

    def staged_nodes(self) -> Iterator[ast.AST]:
        """Every node that is in a function that JAX stages out, each once."""
        for function in self.staged_functions():
            yield from self.scopes.own(function)

    def directly_traced(self, function: ast.AST | None) -> Traced | None:
        """How a function is traced, where the file shows it."""
        return self.traced.get(function) if is_function(function) else None
