"""The events of tripwires that have fired."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from jaxtap._events import TapEvent
from jaxtap._lines import place

# How many trips the error of `raise_on_exit` carries.
TRIPS_KEPT = 1000


class Tripped(Exception):
    """A tripwire has fired. Raised on leaving `jaxtap.record(..., raise_on_exit=True)`, after the program has ended.

    Attributes:
      events: the events of the tripwires, oldest first, at most 1000.
    """

    def __init__(self, events: Sequence[TapEvent]) -> None:
        self.events = tuple(events)
        first = self.events[0]
        more = f", and {len(self.events) - 1} more" if len(self.events) > 1 else ""
        super().__init__(
            f"a tripwire fired at {place(first)} ({first.source}){more}; see the events of this exception."
        )


class Trips(list[TapEvent]):
    """The first of them."""

    def keep(self, events: Iterable[TapEvent]) -> None:
        """Take up more, as far as there is room."""
        self.extend(itertools.islice(events, max(0, TRIPS_KEPT - len(self))))
