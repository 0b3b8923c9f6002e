"""Hold the rules against the source of one file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable

from jaxtap_command._rules._base import Finding
from jaxtap_command._rules._source import Source
from jaxtap_command._rules._table import RULES

# Without the name of one of them, no name in a file stands for anything of theirs.
_LIBRARIES = ("jax", "equinox", "flax")
_IGNORE = re.compile(r"#\s*jaxtap:\s*ignore\b(?:\s*\[([^\]]*)\])?")


def check(text: str, path: str, select: Iterable[str] = RULES) -> list[Finding]:
    """What the rules find in a file, in the order of its lines.

    Args:
      text: the source.
      path: the file's name in the findings.
      select: the ids of the rules to hold against it.

    Raises:
      SyntaxError, ValueError: the source is no Python.
      RecursionError, MemoryError: it is nested too deeply.
    """
    source = Source(text)
    if not any(library in text for library in _LIBRARIES):
        return []
    ignored = _ignored(text) if "jaxtap:" in text else {}
    found: dict[tuple[int, int, str], Finding] = {}
    for rule in (RULES[id] for id in select):
        for node, message in rule.check(source):
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
            last = getattr(node, "end_lineno", line)
            if any(rule.id in ignored.get(at, ()) for at in range(line, last + 1)):
                continue
            at = (line, column, rule.id)
            found[at] = Finding(path, line, column, rule.id, message, rule.why, rule.fix, rule.docs)
    return [found[key] for key in sorted(found)]


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """The rules that comments switch off, by line; an empty comment switches off all."""
    found: dict[int, frozenset[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (match := _IGNORE.search(token.string)):
            ids = match[1]
            found[token.start[0]] = (
                frozenset(RULES) if ids is None else frozenset(re.split(r"[\s,]+", ids.strip().upper()))
            )
    return found
