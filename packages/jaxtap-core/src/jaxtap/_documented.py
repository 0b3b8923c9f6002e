"""What all watches take, described in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_OPTIONS = """\
      on_event: called on the host with each event, on a thread of jaxtap's own.
      on_row: called on the host with each complete row, likewise.
      capacity: keep only the newest this many rows; None keeps all.
      threads: `"own"` sees the thread that opened it, `"all"` every thread.
"""

F = TypeVar("F", bound=Callable[..., Any])


def documented(f: F) -> F:
    """A function whose docstring has the options that all watches share in place of the line `{options}`."""
    if f.__doc__ is not None:
        f.__doc__ = f.__doc__.replace("      {options}\n", _OPTIONS).replace("{options}\n", _unindented(_OPTIONS))
    return f


def _unindented(text: str) -> str:
    # From Python 3.13 on a docstring has lost the indentation of its function when it comes here.
    return "".join(line[4:] + "\n" for line in text.splitlines()).removeprefix("  ")
