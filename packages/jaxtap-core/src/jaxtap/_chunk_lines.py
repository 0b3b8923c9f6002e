"""Many events as lines of JSON at once: the same lines as one by one, several times as fast."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxtap._codec import BASE64, READABLE_SIZE, Otherwise, encode, encode_data, encode_leaf
from jaxtap._dtypes import dtype_name, dtype_named, family
from jaxtap._tap_chunk import TapChunk

# Makes a line of fields, which are JSON text or stand for such.
Line = Callable[[dict[str, Any]], str]


def chunk_lines(chunk: TapChunk, otherwise: Otherwise) -> list[str]:
    """The lines of a chunk, without their ends.

    Args:
      chunk: the events.
      otherwise: gives the JSON form of a part of a value that has none.
    """
    columns: dict[str, Sequence[str]] = {
        _stand_in("step"): _integers(chunk.steps),
        _stand_in("call"): _integers(chunk.calls),
        _stand_in("time"): list(map(repr, chunk.times.tolist())),
        _stand_in("lane"): list(map(str, chunk.lanes.tolist())),
        _stand_in("outer"): list(map(str, chunk.outer.tolist())),
    }
    fixed = {position for position, _ in chunk.form.fixed}
    value: list[Any] = []
    for i, leaf in enumerate(chunk.leaves):
        value.append(leaf if i in fixed else _stand_in(f"leaf {i}"))
        if i not in fixed:
            columns[_stand_in(f"leaf {i}")] = _leaf_texts(leaf)
    record = {
        "path": chunk.path,
        "step": _stand_in("step"),
        "total": chunk.total,
        "kind": chunk.kind,
        "value": encode(chunk.form.treedef.unflatten(value), otherwise),
        **{name: _stand_in(name) for name in ("lane", "outer", "call", "time")},
        "source": chunk.source,
        "device": chunk.device,
        "process": chunk.process,
    }
    return _filled(json.dumps(record, allow_nan=False), columns)


def _stand_in(name: str) -> str:
    # No program has such a string.
    return f"\0jaxtap {name}\0"


def _filled(text: str, columns: dict[str, Sequence[str]]) -> list[str]:
    """A line for each row of the columns, which replace what stands for them in `text`."""
    quoted = {json.dumps(name): column for name, column in columns.items()}
    found = sorted((text.index(name), name) for name in quoted)
    template = text.replace("%", "%%")
    for _, name in found:
        template = template.replace(name, "%s")
    return [template % row for row in zip(*(quoted[name] for _, name in found), strict=True)]


def _integers(column: np.ndarray) -> list[str]:
    return list(map(str, column.tolist()))


# --- Leaves --------------------------------------------------------------------------------------------------


def _leaf_texts(leaf: Any) -> list[str]:
    """The JSON text of each row of a leaf."""
    if not isinstance(leaf, np.ndarray) or family(leaf.dtype) not in (int, float):
        return [json.dumps(encode_leaf(row)) for row in leaf]
    name, shape = dtype_name(leaf.dtype), leaf.shape[1:]
    data = _data_texts(leaf.astype(dtype_named(name), copy=False), shape)
    tag = f"{name}[{','.join(map(str, shape))}]" if shape else f"{name}()"
    return [f'{{"{tag}": {text}}}' for text in data]


def _data_texts(leaf: np.ndarray, shape: tuple[int, ...]) -> list[str]:
    size = math.prod(shape)
    if size > READABLE_SIZE:
        flat = np.ascontiguousarray(leaf)
        return [f'"{BASE64}{base64.b64encode(row.tobytes()).decode("ascii")}"' for row in flat]
    if not size:
        return ["[]"] * len(leaf)
    flat = leaf.reshape(-1)
    texts, is_same = _texts(flat)
    layout = _nested(shape)
    rows = [layout % tuple(texts[i : i + size]) for i in range(0, len(texts), size)] if shape else texts
    # Of what numbers do not give back bit for bit, each row is written with care.
    for row in np.flatnonzero(~is_same.reshape(len(leaf), size).all(axis=1)).tolist():
        rows[row] = json.dumps(encode_data(np.asarray(leaf[row])), allow_nan=False)
    return rows


def _texts(flat: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Numbers as JSON text, and which of them are read back bit for bit."""
    if flat.dtype == np.bool_:
        return ["true" if item else "false" for item in flat.tolist()], np.isin(flat.view(np.uint8), (0, 1))
    width = flat.dtype.itemsize
    if family(flat.dtype) is int:
        whole = flat.astype(np.int64) if flat.dtype.kind == "V" else flat
        return _integers(whole), (_bytes(whole.astype(flat.dtype), width) == _bytes(flat, width)).all(axis=1)
    numbers = flat.tolist() if flat.dtype == np.float64 else [float(str(item)) for item in flat]
    back = np.array(numbers, np.float64)
    same = _bytes(back.astype(flat.dtype), width) == _bytes(flat, width)
    return list(map(repr, numbers)), same.all(axis=1) & np.isfinite(back)


def _bytes(flat: np.ndarray, width: int) -> np.ndarray:
    return np.ascontiguousarray(flat).view(np.uint8).reshape(-1, width)


def _nested(shape: tuple[int, ...]) -> str:
    """The layout of nested lists of such a shape."""
    if not shape:
        return "%s"
    return f"[{', '.join([_nested(shape[1:])] * shape[0])}]"
