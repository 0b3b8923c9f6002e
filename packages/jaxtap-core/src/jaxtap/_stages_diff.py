"""What differs between two programs, station by station."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

SUMMARY = "summary.json"


class _HasFiles(Protocol):
    def files(self) -> dict[str, str]: ...


@dataclasses.dataclass(frozen=True)
class StageChange:
    """One difference between two programs.

    Attributes:
      station: `"traced"`, `"lowered"` or `"compiled"`.
      what: what differs, as `"memory temporary"` or `"instructions fusion"`.
      before: what it is in the first.
      after: what it is in the second.

    >>> import jax.numpy as jnp
    >>> found = stages.diff(stages(jnp.sin, 1.0), stages(jnp.cos, 1.0)).changes
    >>> [str(change) for change in found if change.what == "equations cos"]
    ['traced: equations cos none → 1']
    """

    station: str
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.station}: {self.what} {self.before} → {self.after}"


class StagesDiff:
    """What differs between two programs; false if nothing does. Printed, it is a list of lines.

    Attributes:
      changes: differences in what the stations say in numbers and short words.
      texts: the unified diff of each file that differs, by name, as `Stages.save` names them.

    >>> import jax.numpy as jnp
    >>> same, other = stages(jnp.sin, 1.0), stages(jnp.cos, 1.0)
    >>> bool(stages.diff(same, same)), "1-traced.jaxpr.txt" in stages.diff(same, other).texts
    (False, True)
    """

    def __init__(self, before: dict[str, str], after: dict[str, str]) -> None:
        self.changes = tuple(_changes(_summary(before), _summary(after)))
        names = [name for name in dict.fromkeys((*before, *after)) if name != SUMMARY]
        found = {name: _unified(name, before.get(name, ""), after.get(name, "")) for name in names}
        self.texts = {name: text for name, text in found.items() if text}

    def __bool__(self) -> bool:
        return bool(self.changes or self.texts)

    def __repr__(self) -> str:
        lines = [str(change) for change in self.changes]
        for name, text in self.texts.items():
            body = text.splitlines()[2:]
            added, removed = (sum(line.startswith(sign) for line in body) for sign in "+-")
            lines.append(f"{name}: {added} lines more, {removed} lines less")
        return "\n".join(lines) or "no difference"


def diff(a: _HasFiles | str | os.PathLike[str], b: _HasFiles | str | os.PathLike[str]) -> StagesDiff:
    """What differs between two programs.

    Args:
      a: what `jaxtap.stages` gave, or a directory that it was saved in.
      b: likewise.

    Raises:
      FileNotFoundError: if a directory holds nothing that `Stages.save` has written.
    """
    return StagesDiff(_files(a), _files(b))


def _files(of: _HasFiles | str | os.PathLike[str]) -> dict[str, str]:
    if not isinstance(of, (str, os.PathLike)):
        return of.files()
    folder = Path(of)
    if not (folder / SUMMARY).is_file():
        raise FileNotFoundError(f"{folder} holds no {SUMMARY}: write one with jaxtap.stages(f, ...).save({str(of)!r}).")
    found = [path for path in sorted(folder.iterdir()) if path.name == SUMMARY or path.name[:2] in ("1-", "2-", "3-")]
    return {path.name: path.read_text(encoding="utf-8") for path in found}


def _summary(files: dict[str, str]) -> dict[tuple[str, str], str]:
    flat: dict[tuple[str, str], str] = {}
    for station, parts in json.loads(files[SUMMARY]).items():
        for part, found in parts.items():
            if isinstance(found, dict):
                flat |= {(station, f"{part} {name}"): _text(value) for name, value in found.items()}
            else:
                flat[station, part] = _text(found)
    return flat


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _changes(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> Iterator[StageChange]:
    for station, what in dict.fromkeys((*before, *after)):
        then, now = (found.get((station, what), "none") for found in (before, after))
        if then != now:
            yield StageChange(station, what, then, now)


def _unified(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(lines)
