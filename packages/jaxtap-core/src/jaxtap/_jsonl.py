"""Events in a file that outlives the process: one JSON object per line."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Self

import jax

from jaxtap._batches import Batch
from jaxtap._chunk_lines import chunk_lines
from jaxtap._codec import encode
from jaxtap._events import TapEvent
from jaxtap._guard import described, warn
from jaxtap._line_file import LineFile
from jaxtap._sinks import TakesBatches
from jaxtap._tap_chunk import TapChunk
from jaxtap._write_queue import Item, WriteQueue, joined

KEYS = ["path", "step", "total", "kind", "value", "lane", "outer", "call", "time", "source", "device", "process"]

# What a reader must know of the lines; one that knows less refuses the file. The first line names it.
FORMAT = 1

_REPR_LENGTH = 200

# NumPy integers as steps become plain ones. Strict JSON has no NaN, which jq and browsers refuse.
_to_json = json.JSONEncoder(allow_nan=False, default=int).encode


class JSONLWriter(TakesBatches):
    """Writes each event to a file, one JSON object per line, as it comes.

    Pass it as `on_step=`. It is a `Sink`: events that arrive together are written together, on a thread of the writer's
    own, which holds up neither the program nor other functions. They are in the operating system's hands within half a
    second, so that a killed process loses no more than its last second. Values come back from `read_jsonl` bit for bit
    and in the same pytree: tuples, lists, dicts, namedtuples, None, arrays and scalars of every JAX dtype, PRNG keys.
    Another registered pytree comes back as a dict from key path to leaf, and a value that cannot be written as its
    `repr`, with one warning.

    No call raises. An event that cannot be written, because the disk is full or the writer closed, is counted in
    `dropped`, and the first one is warned about. So are the oldest events where a disk is so slow that more than 64 MiB
    wait for it.

    The first line says that the file was begun, and in which format; the last one, written on closing or when the
    interpreter exits, that it was ended. Neither is an event. Without the last one, the process was killed, or is still
    running.

    Arguments:
      path: the file; one that exists is overwritten. Its folder must exist. `{process}` stands for the index of this
        process, as in `"run-{process}.jsonl"`; call `jax.distributed.initialize` before.

    Attributes:
      path: the file, as a `Path`.

    Raises:
      OSError: the file cannot be opened; only on construction.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxtap import JSONLWriter, TapEvent, read_jsonl
      >>> with JSONLWriter("run.jsonl") as writer:
      ...     writer(TapEvent(path="scan[0]", step=0, value=jnp.float32(0.5)))
      >>> read_jsonl("run.jsonl")[0].value
      array(0.5, dtype=float32)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _of_process(path)
        self._file = LineFile(self.path, _marker("begun", format=FORMAT), lambda: _marker("ended"))
        self._queue = WriteQueue(self._file)
        self._otherwise = _Otherwise(self.path)
        # Not at exit: JAX waits for outstanding callbacks then, and their events shall still be written.
        weakref.finalize(self, self._queue.close).atexit = False

    @property
    def written(self) -> int:
        """How many events the operating system has taken; all that were not dropped, once closed."""
        return self._file.written

    @property
    def dropped(self) -> int:
        """How many events are not in the file."""
        return self._file.dropped

    @property
    def replaced(self) -> int:
        """How many values, or parts of one, were written as their `repr`."""
        return self._otherwise.count

    def __call__(self, event: TapEvent, /) -> None:
        """Write `event`."""
        otherwise = self._otherwise
        item = Item(lambda: _line_of(event, otherwise), 1, 1000)
        if not self._queue.is_idle:
            self._queue.put(item)
            return
        try:
            line = item.lines()
        except Exception as error:  # noqa: BLE001 - what is no event may raise anything
            self._file.drop(1, f"{described(error)}. Pass it TapEvents")
        else:
            self._file.append(line)

    def write(self, chunk: TapChunk, /) -> None:
        """Write many events, as a `Sink`."""
        otherwise = self._otherwise
        nbytes = 1000 + sum(getattr(array, "nbytes", 0) for array in (chunk.steps, chunk.times, *chunk.arrays))
        self._queue.put(Item(lambda: joined(chunk_lines(chunk, otherwise)), len(chunk), nbytes))

    def add(self, item: Batch) -> None:
        """Write events that arrived together, in their order."""
        otherwise = self._otherwise
        self._queue.put(Item(lambda: _lines_of(item, otherwise), len(item), item.nbytes))

    def close(self) -> None:
        """Write what is pending and close the file. A second call does nothing."""
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Otherwise:
    """Stands in for values that cannot be written. Holds no writer, so that one that is let go is closed.

    Attributes:
      count: for how many values.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, value: Any) -> dict[str, str]:
        text = _short_repr(value)
        with self._lock:
            first = not self.count
            self.count += 1
        if first:
            warn(
                f"jaxtap: {self._path}: a value of type {type(value).__name__} is written as its repr, {text}: it is "
                "no array, scalar, string or pytree of these. Return arrays from select to have them read back. "
                "Further ones are counted in JSONLWriter.replaced, not warned about.",
                stacklevel=3,
            )
        return {"repr()": text}


def _line_of(event: TapEvent, otherwise: _Otherwise) -> bytes:
    try:
        return _line(event, encode(event.value, otherwise))
    except Exception:  # noqa: BLE001 - a value that contains itself, an int that json refuses for its length, ...
        _line(event, None)  # raises where the value is not to blame
        return _line(event, otherwise(event.value))


def _lines_of(batch: Batch, otherwise: _Otherwise) -> bytes:
    found = [(chunk, chunk_lines(chunk, otherwise)) for chunk in batch.chunks()]
    if len(found) == 1:
        return joined(found[0][1])
    lines = [""] * len(batch)
    for chunk, own in found:
        for place, line in zip(chunk.order.tolist(), own, strict=True):
            lines[place] = line
    return joined(lines)


def _line(event: TapEvent, value: Any) -> bytes:
    record = {key: value if key == "value" else getattr(event, key) for key in KEYS}
    return _to_json(record).encode("ascii") + b"\n"


def _marker(name: str, **more: Any) -> bytes:
    """A line that tells of the file."""
    return _to_json({name: time.time(), **more}).encode("ascii") + b"\n"


def _of_process(path: str | os.PathLike[str]) -> Path:
    """The file of this process. Asking which that is starts JAX's backends, so only if it matters."""
    text = os.fspath(path)
    return Path(text.replace("{process}", str(jax.process_index())) if "{process}" in text else text)


def _short_repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a foreign type may raise anything
        text = f"<{type(value).__name__} object>"
    return text if len(text) <= _REPR_LENGTH else f"{text[:_REPR_LENGTH]}..."
