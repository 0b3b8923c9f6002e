"""`where=`: which addresses are seen, by a glob, by the name of a function, or by a predicate."""

from __future__ import annotations

import functools
import re
from typing import Any

from jaxtap._config import ByIdentity
from jaxtap._types import WhereSpec

# What a predicate becomes in a cache key: a function is known by its identity, a string by its letters.
Where = ByIdentity | str | None


def check_where(where: WhereSpec) -> Where:
    """A `where` as the user wrote it, checked.

    Raises:
      TypeError: if it is neither a string, a function nor None.
      ValueError: if it is an empty string.
    """
    if where is None:
        return None
    if isinstance(where, str):
        if not where.strip():
            raise ValueError(
                "where must not be empty: pass a glob over addresses such as 'scan[0]/while[*]', or the name of a "
                "function such as 'one_step'. jaxtap.loops(f, *args) lists both."
            )
        return where
    if callable(where):
        return ByIdentity(where)
    raise TypeError(
        "where must be a glob over addresses such as 'scan[0]/while[*]', the name of a function such as 'one_step', a "
        f"predicate over the address, or None; got {type(where).__name__}."
    )


def allows(where: Where, path: str, source: str) -> bool:
    """Whether a `where` lets through what has an address and a source such as `"file.py:42 (function)"`."""
    if where is None:
        return True
    if isinstance(where, str):
        return any(map(_pattern(where).fullmatch, (path,) if is_glob(where) else functions_of(source)))
    predicate: Any = where.value
    return bool(predicate(path))


def is_glob(where: str) -> bool:
    """Whether a string is over addresses. Each part of an address has brackets, and no function's name has."""
    return "[" in where or "/" in where


def functions_of(source: str) -> tuple[str, ...]:
    """The function in a source such as `"file.py:42 (Model.step)"`, by its full name and by its own."""
    found = re.search(r"\((.*)\)$", source)
    return (found[1], found[1].split(".")[-1]) if found else ()


@functools.lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """A glob in which brackets are letters, `*` stays within a part of an address, and `**` does not."""
    pieces = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(pieces.get(piece) or re.escape(piece) for piece in re.split(r"(\*\*|\*|\?)", glob)))
