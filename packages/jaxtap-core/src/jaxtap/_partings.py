"""Where two recordings part, as it is told."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxtap._lines import short


@dataclasses.dataclass(frozen=True, eq=False)
class Parting:
    """The first event of one address and leaf in which two recordings differ.

    Attributes:
      path: address.
      kind: kind, as `TapEvent.kind`.
      step: the step.
      lane: index under `vmap`.
      outer: step of each enclosing loop.
      call: which execution of the address.
      device: index of the device that sent it.
      process: index of the process that received it.
      leaf: the name of the leaf; None where one of the recordings lacks the event.
      index: which element of the leaf is the first to differ.
      what: `"differs"`, `"only in a"` or `"only in b"`.
      a: what that element is in the first recording; None where there is nothing.
      b: what it is in the second.
      around: the step, and that element in both, of some steps before and after.

    >>> parting = diff([TapEvent("scan[0]", 3, 0.5)], [TapEvent("scan[0]", 3, 0.25)]).first
    >>> parting.path, parting.step, parting.what
    ('scan[0]', 3, 'differs')
    """

    path: str
    kind: str
    step: int
    lane: tuple[int, ...]
    outer: tuple[int, ...]
    call: int
    device: int
    process: int
    leaf: str | None
    index: tuple[int, ...]
    what: str
    a: Any
    b: Any
    around: tuple[tuple[int, Any, Any], ...]

    @property
    def place(self) -> str:
        """Where it is, in words."""
        words = self.path if self.step < 0 else f"{self.path} step {self.step}"
        words += "" if self.kind == "carry" else f" ({self.kind})"
        for name, value in (("lane", self.lane), ("outer steps", self.outer)):
            words += f", {name} {value[0] if len(value) == 1 else value}" if value else ""
        for name in ("call", "device", "process"):
            words += f", {name} {getattr(self, name)}" if getattr(self, name) else ""
        return words

    def __str__(self) -> str:
        if self.leaf is None:
            return f"{self.place}: {self.what}"
        element = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.place}, {self.leaf}{element}: {_text(self.a)} in a, {_text(self.b)} in b"


@dataclasses.dataclass(frozen=True, eq=False)
class RecordingDiff:
    """What differs between two recordings; false if nothing does. Printed, it is a page.

    Attributes:
      partings: where they part: for each address and leaf the first event that differs, or that one of them lacks; in
        the order of the first recording.
      notes: what differs in names, shapes and dtypes of leaves, in sentences.
      compared: how many events both have.
      differing: how many of those differ.
      only_a: how many events only the first has.
      only_b: how many events only the second has.

    >>> found = diff([TapEvent("scan[0]", 0, 0.5)], [TapEvent("scan[0]", 0, 0.5), TapEvent("scan[0]", 1, 0.25)])
    >>> bool(found), found.compared, found.only_b, found.first.what
    (True, 1, 1, 'only in b')
    """

    partings: tuple[Parting, ...]
    notes: tuple[str, ...]
    compared: int
    differing: int
    only_a: int
    only_b: int

    @property
    def first(self) -> Parting | None:
        """The first of the partings, or None."""
        return self.partings[0] if self.partings else None

    def __bool__(self) -> bool:
        return bool(self.partings or self.notes)

    def __repr__(self) -> str:
        if not self:
            return f"the recordings are the same: {self.compared} events"
        lines = list(self.notes)
        if self.first is not None:
            lines.append(f"the recordings part at {self.first}")
            lines += _table(self.first) if self.first.step >= 0 else []
        text = f"{self.differing} of {self.compared} events differ"
        for name, count in (("a", self.only_a), ("b", self.only_b)):
            text += f", {count} are only in {name}" if count else ""
        return "\n".join([*lines, text])


def _table(parting: Parting) -> list[str]:
    rows = [("step", "a", "b"), *((str(step), _text(a), _text(b)) for step, a, b in parting.around)]
    widths = [max(10, *(len(row[i]) for row in rows)) for i in range(3)]
    marks = [" ", *(">" if step == parting.step else " " for step, _, _ in parting.around)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, (6, *widths[1:]), strict=True)) for row in rows]
    return [f"  {mark} {line}" for mark, line in zip(marks, lines, strict=True)]


def _text(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        return str(value)
    return short(value) if isinstance(value, np.ndarray) else str(value)
