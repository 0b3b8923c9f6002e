"""Events in a file that outlives the process: one JSON object per line."""

from __future__ import annotations

import dataclasses
import errno
import glob
import json
import os
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax

from jaxtap._batches import Batch
from jaxtap._chunk_lines import chunk_lines
from jaxtap._codec import decode, decode_jaxtap, encode
from jaxtap._events import TapEvent
from jaxtap._guard import warn
from jaxtap._line_file import LineFile
from jaxtap._sinks import TakesBatches
from jaxtap._tap_chunk import TapChunk
from jaxtap._write_queue import Item, WriteQueue, joined

_KEYS = ["path", "step", "total", "kind", "value", "lane", "outer", "call", "time", "source", "device", "process"]

_REPR_LENGTH = 200

# Lines that are no events.
_MARKERS = {"begun", "ended"}
_NO_FILE = "No such file, so no events to read; pass read_jsonl the path that JSONLWriter was given"

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

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

    The first line says that the file was begun, and the last one, written on closing or when the interpreter exits,
    that it was ended; neither is an event. Without the last one, the process was killed, or is still running.

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
        self._file = LineFile(self.path, _marker("begun"), lambda: _marker("ended"))
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
            self._file.drop(1, f"{type(error).__name__}: {error}. Pass it TapEvents")
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


def read_jsonl(path: Paths) -> list[TapEvent]:
    """The events in a file that `JSONLWriter` wrote, or jax-tap 0.3; or in several files, merged by time.

    A line that cannot be read is left out, with one `JaxtapWarning` that counts them: a process that was killed may
    leave half of its last line. Lines of jax-tap come back as it read them: Python scalars, and arrays of float64,
    int64 or bool.

    Where several files are read, those of processes that were killed, or are still running, are named in one
    `JaxtapWarning`, with the time of the last event. One file may be read while it is written, without a warning.

    Arguments:
      path: the file; or several, as a list or a glob such as `"run-*.jsonl"`. `TapEvent.process` tells them apart.

    Returns:
      The events in the order in which they were written, or of several files by time. Arrays are NumPy arrays,
      PRNG keys JAX key arrays.

    Raises:
      FileNotFoundError: there is no such file.

    Example:
      >>> from jaxtap import JSONLWriter, TapEvent, read_jsonl
      >>> with JSONLWriter("run.jsonl") as writer:
      ...     writer(TapEvent(path="scan[0]", step=0, value={"loss": 0.5}))
      >>> [event.value["loss"] for event in read_jsonl("run.jsonl") if event.path == "scan[0]"]
      [0.5]
    """
    if isinstance(path, (str, os.PathLike)) and not _is_glob(path):
        return _read(Path(path)).events
    files = list(map(_read, _expanded(path)))
    early = [f"{file.path} ({_last_heard(file)})" for file in files if file.ended_early]
    if early:
        warn(
            f"jaxtap: {len(early)} of {len(files)} files ended early: {', '.join(early)}. Their processes were killed, "
            "or are still running; all events up to there are complete."
        )
    return sorted((event for file in files for event in file.events), key=lambda event: event.time)


@dataclasses.dataclass(frozen=True)
class _File:
    """What a file holds.

    Attributes:
      path: the file.
      events: its events.
      ended_early: whether it was begun and not ended; not known of files older than that.
    """

    path: Path
    events: list[TapEvent]
    ended_early: bool


def _is_glob(path: str | os.PathLike[str]) -> bool:
    return glob.has_magic(os.fspath(path)) and not os.path.exists(path)


def _expanded(paths: Paths) -> list[Path]:
    """The files that are meant, in order of their names."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: list[Path] = []
    for path in paths:
        some = sorted(glob.glob(os.fspath(path))) if _is_glob(path) else [os.fspath(path)]
        if not some:
            raise FileNotFoundError(errno.ENOENT, _NO_FILE, str(path))
        found += map(Path, some)
    return found


def _last_heard(file: _File) -> str:
    if not file.events:
        return "no event"
    last = max(event.time for event in file.events)
    return f"process {file.events[-1].process}, last event {time.strftime('%H:%M:%S', time.localtime(last))}"


def _read(path: Path) -> _File:
    events: list[TapEvent] = []
    failures: list[str] = []
    markers: set[str] = set()
    with _open_to_read(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8"))
                if marker := _MARKERS & record.keys():
                    markers |= marker
                else:
                    events.append(_event(record))
            except Exception as error:  # noqa: BLE001 - a broken line may hold anything
                failures.append(f"line {number}, {type(error).__name__}: {error}")
    if failures:
        warn(
            f"jaxtap: {path}: skipped {len(failures)} of {len(events) + len(failures)} lines, which cannot be read "
            f"(first: {failures[0]}). The other events are complete. A process that is killed may cut its last line "
            "short; if other lines are named, the file was damaged or written by a newer jaxtap.",
            stacklevel=3,
        )
    return _File(path, events, markers == {"begun"})


def _open_to_read(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, _NO_FILE, str(path)) from error


def _event(record: dict[str, Any]) -> TapEvent:
    fields = {key: record[key] for key in _KEYS if key in record}
    for key in {"lane", "outer"} & fields.keys():
        fields[key] = tuple(fields[key])
    if "value_kind" in record:  # only jax-tap writes it
        fields["value"] = decode_jaxtap(record["value_kind"], record["value"])
    else:
        fields["value"] = decode(record["value"])
    return TapEvent(**fields)


def _line(event: TapEvent, value: Any) -> bytes:
    record = {key: value if key == "value" else getattr(event, key) for key in _KEYS}
    return _to_json(record).encode("ascii") + b"\n"


def _marker(name: str) -> bytes:
    """A line that tells of the file."""
    return _to_json({name: time.time()}).encode("ascii") + b"\n"


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
