"""The lines that alerts and printing taps write to stderr."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from jaxtap._events import TapEvent


class Placed(Protocol):
    """An event, or a row: something that has happened at a step of a loop, in a lane."""

    @property
    def path(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def total(self) -> int | None: ...
    @property
    def lane(self) -> tuple[int, ...]: ...


def place(event: Placed) -> str:
    """Where an event happened, as `scan[0]/mul[0] 1/5`, with the lane if there is one."""
    lane = f" lane {event.lane}" if event.lane else ""
    total = "?" if event.total is None else event.total
    return f"{event.path} {event.step}/{total}{lane}"


def alert_line(event: Placed, message: str) -> str:
    """The line that an alert prints."""
    return f"[tap] FAIL {place(event)}: {message}"


def value_line(event: TapEvent) -> str:
    """The line that a printing tap prints."""
    return f"[tap] {place(event)}: {short(event.value)}"


def short(value: Any) -> str:
    """A value on one line, long arrays cut short."""
    with np.printoptions(precision=4, threshold=8, edgeitems=2):
        try:
            text = repr(np.asarray(value))
        except Exception:  # noqa: BLE001 - outputs of several shapes make no array, PRNG keys neither
            text = repr(value)
    return " ".join(text.split())
