"""Writing results: plain text, coloured where rich is installed and somebody looks, or JSON."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import Any


def say(line: str = "") -> None:
    """Write one line of text."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        importlib.import_module("rich.console").Console().print(
            _printable(line), soft_wrap=True, markup=False, emoji=False
        )
    else:
        print(_printable(line))


def _printable(text: str) -> str:
    """A text with what stdout has no bytes for written as escapes, such as an arrow, or a file name that is no text."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows in columns, under their names."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write_json(value: Any) -> None:
    """Write one JSON value; what JSON has no form for is written as text."""
    print(json.dumps(value, indent=2, default=str))
