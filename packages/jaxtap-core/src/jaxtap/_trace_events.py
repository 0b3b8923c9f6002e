"""Events of programs that do not run yet: a loop is traced, a program is compiled."""

from __future__ import annotations

import time
from typing import Any

from jaxtap._compile_log import Compile
from jaxtap._events import TapEvent
from jaxtap._loops import leaves_of_mark
from jaxtap._signature import short_dtype


def trace_event(path: str, mark: Any) -> TapEvent:
    """The event of a loop that is lowered, given the mark in its body: the type of each leaf, for one lane."""
    site = mark.params["site"]
    types = {leaf.name: _type(leaf.shape, leaf.dtype) for leaf in leaves_of_mark(mark)}
    return TapEvent(path, -1, types, site.total, "trace", time=time.time(), source=site.source)


def _type(shape: tuple[int, ...], dtype: Any) -> str:
    return f"{short_dtype(str(dtype))}[{','.join(map(str, shape))}]"


def compile_event(row: Compile) -> TapEvent:
    """The event of a program that was compiled; its address is the name of the function."""
    value: dict[str, Any] = {
        "number": row.number,
        "cause": row.cause,
        "reason": row.reason,
        "trace_seconds": row.trace_seconds,
        "lowering_seconds": row.lowering_seconds,
        "compile_seconds": row.compile_seconds,
        "cache": row.cache,
    }
    value = {name: known for name, known in value.items() if known is not None}
    return TapEvent(row.name, -1, value, None, "compile", time=row.time + row.seconds, source=row.source)
