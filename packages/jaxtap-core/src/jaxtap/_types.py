"""The shapes of the functions that users hand to a lens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from jaxtap._events import TapEvent


class OnEvent(Protocol):
    """Called on the host with each event; what it returns is not looked at."""

    def __call__(self, event: TapEvent, /) -> object: ...


class Alert(Protocol):
    """Host-side predicate: a true result prints one line; a string is that line's message."""

    def __call__(self, event: TapEvent, /) -> object: ...


# A selector is traced: it runs on the device. Its parameters vary (`leaves`, or `leaves, path`), which
# no Protocol can say.
Select = Callable[..., Any]

# A selector as users write it: nothing (all leaves), leaf names, or a function of the leaves.
SelectSpec = Select | str | list[str] | tuple[str, ...] | None

# Which lanes of a vmap are sent, as users choose: of the outermost mapped axis, or a tuple with one choice an axis.
LaneSpec = int | slice | list[int] | range
LanesSpec = LaneSpec | tuple[LaneSpec, ...] | None

# Which addresses are seen, as users choose: by a glob, the name of a function, or a predicate over the address.
WhereSpec = Callable[[str], bool] | str | None

# Marked values as users choose them: all, by name or glob, or with what to send of each.
MarksSpec = str | Sequence[str] | Mapping[str, SelectSpec] | None

# What happens when user functions cannot keep up.
Overflow = Literal["block", "drop"]
