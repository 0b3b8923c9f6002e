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

    >>> import jax, jax.numpy as jnp
    >>> try:
    ...     with record(taps=[watch_nan()], raise_on_exit=True):
    ...         y = jax.lax.fori_loop(0, 3, lambda i, x: jnp.log(x), 1.0)
    ... except Tripped as error:
    ...     error.events[0].path, error.events[0].step
    [tap] FAIL scan[0]/log[0] 1/3: NaN/Inf: ...
    ('scan[0]/log[0]', 1)
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
