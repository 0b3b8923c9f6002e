"""Numbers for outermost boundaries, which no enclosing body counts: a recording counts them as it meets them."""

from __future__ import annotations

import threading
from typing import Any

from jaxtap._mark import Path, Root


class Numbering:
    """Writes addresses out, numbering outermost boundaries from 0 in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Any], int] = {}
        self._counts: dict[str, int] = {}
        self._texts: dict[Path, str] = {}
        self._lock = threading.Lock()

    def text(self, path: Path) -> str:
        """The address of a path."""
        found = self._texts.get(path)
        if found is None:
            with self._lock:
                found = self._texts[path] = self._write(path)
        return found

    def _write(self, path: Path) -> str:
        text = ""
        for part in path:
            if isinstance(part, Root):
                number = self._numbers.get((text, part))
                if number is None:
                    # Boundaries share one counter, single values count by name.
                    counter = f"{text}/{part.op}" if part.point else text
                    number = self._numbers[(text, part)] = self._counts.get(counter, 0)
                    self._counts[counter] = number + 1
                part = f"{part.op}[{number}]"
            text = f"{text}/{part}" if text else part
        return text
