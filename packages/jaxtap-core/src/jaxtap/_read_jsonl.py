"""Events out of files: what can be read is read, what cannot is counted, and nothing in a file is ever run."""

from __future__ import annotations

import collections
import dataclasses
import errno
import glob
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxtap._codec import decode, decode_jaxtap
from jaxtap._events import TapEvent
from jaxtap._guard import warn
from jaxtap._jsonl import FORMAT, KEYS

# Lines that are no events.
_MARKERS = {"begun", "ended"}
_NO_FILE = "No such file, so no events to read; pass read_jsonl the path that JSONLWriter was given"
# A longer line is not held in memory: a file without line ends is no recording.
LONGEST_LINE = 1 << 30
_LONGEST_REASON = 200
# The year 10000, where dates end.
_LATEST = 253402300800.0

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_jsonl(path: Paths) -> list[TapEvent]:
    """The events in a file that `JSONLWriter` wrote, or jax-tap 0.3; or in several files, merged by time.

    A line that cannot be read is left out, with one `JaxtapWarning` that counts them: a process that was killed may
    leave half of its last line. The file need not be trusted: nothing in it is run or imported, and an array takes no
    more memory than its line. Lines of jax-tap come back as it read them: Python scalars, and arrays of float64,
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
      ValueError: a newer jaxtap has written the file, in a format that this one does not know.

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
    skipped, first = 0, ""
    markers: collections.Counter[str] = collections.Counter()
    with _open_to_read(path) as file:
        for number, line in enumerate(_lines(file), start=1):
            if line is not None and not line.strip():
                continue
            try:
                record = _record(line)
                if marker := _MARKERS & record.keys():
                    markers.update(marker)
                    newer = _newer_format(record)
                else:
                    events.append(_event(record))
                    newer = None
            except Exception as error:  # noqa: BLE001 - a broken line may hold anything
                skipped += 1
                first = first or f"line {number}, {type(error).__name__}: {_shortened(str(error))}"
                continue
            if newer is not None:
                raise ValueError(
                    f"{path}: written by a newer jaxtap, in format {newer}, of which this one reads up to {FORMAT}: "
                    "pip install --upgrade jaxtap-core."
                )
    if skipped:
        warn(
            f"jaxtap: {path}: skipped {skipped} of {len(events) + skipped} lines, which cannot be read "
            f"(first: {first}). The other events are complete. A process that is killed may cut its last "
            "line short; if other lines are named, the file was damaged or written by a newer jaxtap.",
            stacklevel=3,
        )
    return _File(path, events, markers["begun"] > markers["ended"])


def _open_to_read(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, _NO_FILE, str(path)) from error


def _lines(file: Any) -> Iterator[bytes | None]:
    """The lines; None for one that is too long to be held."""
    while line := file.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(1 << 20)
        yield None


def _record(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise ValueError(f"longer than {LONGEST_LINE} bytes")
    record = json.loads(line.decode("utf-8"))
    if not isinstance(record, dict):
        raise TypeError("a line that is no JSON object")
    return record


def _newer_format(marker: dict[str, Any]) -> int | None:
    """The format that a marker names, if it is newer than what is known here."""
    named = marker.get("format", FORMAT)
    return named if _is_count(named) and named > FORMAT else None


# Events


def _is_count(value: Any) -> bool:
    return type(value) is int


def _is_counts(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_count, value))


def _is_time(value: Any) -> bool:
    return type(value) in (float, int) and 0 <= value < _LATEST


def _is_text(value: Any) -> bool:
    return type(value) is str


_FIELDS = {
    "path": _is_text,
    "step": _is_count,
    "total": lambda value: value is None or _is_count(value),
    "kind": _is_text,
    "lane": _is_counts,
    "outer": _is_counts,
    "call": _is_count,
    "time": _is_time,
    "source": _is_text,
    "device": _is_count,
    "process": _is_count,
}


def _event(record: dict[str, Any]) -> TapEvent:
    fields = {key: record[key] for key in KEYS if key in record}
    for key in {"lane", "outer"} & fields.keys():
        fields[key] = tuple(fields[key])
    for key, is_right in _FIELDS.items():
        if key in fields and not is_right(fields[key]):
            raise TypeError(f"{key} cannot be {fields[key]!r}")
    if "value_kind" in record:  # only jax-tap writes it
        fields["value"] = decode_jaxtap(record["value_kind"], record["value"])
    else:
        fields["value"] = decode(record["value"])
    return TapEvent(**fields)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
