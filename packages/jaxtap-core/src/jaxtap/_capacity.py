"""How much a recorder keeps: a number of events, an amount of memory, or both."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from jaxtap._config import check_count

# What users may write.
CapacitySpec = int | str | tuple[int, str] | None

# A recorder that no one has bounded shall not take all the memory of a long run.
DEFAULT_BYTES = 1 << 30

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) *([kKMGT]?)(i?)B")
_RULE = 'a number of events, an amount of memory such as "4GiB" or "500 MB", or both as a tuple'


class Capacity(NamedTuple):
    """Bounds of a recorder.

    Attributes:
      events: how many events are kept; None for any number.
      nbytes: how much memory they may take.
    """

    events: int | None
    nbytes: int


def check_capacity(capacity: Any) -> Capacity:
    """A `capacity` as the user wrote it, checked.

    Raises:
      ValueError: if it is none of what it may be.
    """
    if isinstance(capacity, tuple) and len(capacity) == 2:  # pyright: ignore[reportUnknownArgumentType]
        return Capacity(_events(capacity[0]), _amount(capacity[1], capacity))
    if isinstance(capacity, str):
        return Capacity(None, _amount(capacity, capacity))
    return Capacity(None if capacity is None else _events(capacity), DEFAULT_BYTES)


def _events(count: Any) -> int:
    return check_count("capacity", count, 1, f"events kept; it is {_RULE}")


def _amount(amount: Any, whole: Any) -> int:
    found = _AMOUNT.fullmatch(amount.strip()) if isinstance(amount, str) else None
    if found is None:
        raise ValueError(f"capacity must be {_RULE}; got {whole!r}.")
    number, prefix, binary = found.groups()
    nbytes = int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix.upper() or " "))
    if nbytes < 1:
        raise ValueError(f"capacity must be at least a byte; got {whole!r}.")
    return nbytes
