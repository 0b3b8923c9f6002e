"""What a rule is, and what it finds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from jaxtap_command._rules._source import Source

Found = tuple[ast.AST, str]
"""The node that is at fault, and what is said of it."""


@dataclass(frozen=True)
class Rule:
    """One hazard.

    Attributes:
      id: "J001" to "J020".
      title: the hazard in a few words.
      why: why it hurts.
      fix: the smallest fix.
      check: finds it in the source of one file.
    """

    id: str
    title: str
    why: str
    fix: str
    check: Callable[[Source], Iterator[Found]]

    @property
    def docs(self) -> str:
        """The page and anchor that explain the rule."""
        return f"docs/rules.md#{self.id.lower()}"


@dataclass(frozen=True)
class Finding:
    """One place where a rule holds something against the code. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    id: str
    message: str
    why: str
    fix: str
    docs: str

    def as_dict(self) -> dict[str, str | int]:
        """The fields, as they are written in JSON."""
        return asdict(self)
