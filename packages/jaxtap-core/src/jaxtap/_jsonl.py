"""Events in a file that outlives the process: one JSON object per line."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Self

from jaxtap._codec import decode, decode_jaxtap, encode
from jaxtap._events import TapEvent
from jaxtap._guard import warn

_KEYS = ["path", "step", "total", "kind", "value", "lane", "outer", "call", "time", "source", "device", "process"]

# A burst is written five times a second: nothing to see in a profile, and well within the promised second.
_FLUSH_AFTER_S = 0.2
_FLUSH_BYTES = 1 << 16
_REPR_LENGTH = 200

# NumPy integers as steps become plain ones. Strict JSON has no NaN, which jq and browsers refuse.
_to_json = json.JSONEncoder(allow_nan=False, default=int).encode


class JSONLWriter:
    """Writes each event to a file, one JSON object per line, as it comes.

    Pass it as `on_step=`. An event is in the operating system's hands 0.2 s after the call, so that a killed process
    loses no more than that. Values come back from `read_jsonl` bit for bit and in the same pytree: tuples, lists,
    dicts, namedtuples, None, arrays and scalars of every JAX dtype, PRNG keys. Another registered pytree comes back as
    a dict from key path to leaf, and a value that cannot be written as its `repr`, with one warning.

    No call raises. An event that cannot be written, because the disk is full or the writer closed, is counted in
    `dropped`, and the first one is warned about.

    Arguments:
      path: the file; one that exists is overwritten. Its folder must exist.

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
        self.path = Path(path)
        self._file = _LineFile(self.path)
        self._lock = threading.RLock()
        self._replaced = 0
        # Not at exit: JAX waits for outstanding callbacks then, and their events shall still be written.
        weakref.finalize(self, self._file.close).atexit = False

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
        return self._replaced

    def __call__(self, event: TapEvent, /) -> None:
        """Write `event`."""
        try:
            line = self._line(event)
        except Exception as error:  # noqa: BLE001 - what is no event may raise anything
            self._file.drop(1, f"{type(error).__name__}: {error}. Pass it TapEvents")
        else:
            self._file.append(line)

    def close(self) -> None:
        """Write what is pending and close the file. A second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _line(self, event: TapEvent) -> bytes:
        try:
            return _line(event, encode(event.value, self._replace))
        except Exception:  # noqa: BLE001 - a value that contains itself, an int that json refuses for its length, ...
            _line(event, None)  # raises where the value is not to blame
            return _line(event, self._replace(event.value))

    def _replace(self, value: Any) -> dict[str, str]:
        text = _short_repr(value)
        with self._lock:
            first = not self._replaced
            self._replaced += 1
        if first:
            warn(
                f"jaxtap: {self.path}: a value of type {type(value).__name__} is written as its repr, {text}: it is no "
                "array, scalar, string or pytree of these. Return arrays from select to have them read back. Further "
                "ones are counted in JSONLWriter.replaced, not warned about.",
                stacklevel=3,
            )
        return {"repr()": text}


def read_jsonl(path: str | os.PathLike[str]) -> list[TapEvent]:
    """The events in a file that `JSONLWriter` wrote, or jax-tap 0.3.

    A line that cannot be read is left out, with one `JaxtapWarning` that counts them: a process that was killed may
    leave half of its last line. Lines of jax-tap come back as it read them: Python scalars, and arrays of float64,
    int64 or bool.

    Arguments:
      path: the file.

    Returns:
      The events in the order in which they were written. Arrays are NumPy arrays, PRNG keys JAX key arrays.

    Raises:
      FileNotFoundError: there is no such file.

    Example:
      >>> from jaxtap import JSONLWriter, TapEvent, read_jsonl
      >>> with JSONLWriter("run.jsonl") as writer:
      ...     writer(TapEvent(path="scan[0]", step=0, value={"loss": 0.5}))
      >>> [event.value["loss"] for event in read_jsonl("run.jsonl") if event.path == "scan[0]"]
      [0.5]
    """
    events: list[TapEvent] = []
    failures: list[str] = []
    with _open_to_read(Path(path)) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                events.append(_event(line))
            except Exception as error:  # noqa: BLE001 - a broken line may hold anything
                failures.append(f"line {number}, {type(error).__name__}: {error}")
    if failures:
        warn(
            f"jaxtap: {path}: skipped {len(failures)} of {len(events) + len(failures)} lines, which cannot be read "
            f"(first: {failures[0]}). The other events are complete. A process that is killed may cut its last line "
            "short; if other lines are named, the file was damaged or written by a newer jaxtap."
        )
    return events


def _open_to_read(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        message = "No such file, so no events to read; pass read_jsonl the path that JSONLWriter was given"
        raise FileNotFoundError(errno.ENOENT, message, str(path)) from error


def _event(line: bytes) -> TapEvent:
    record = json.loads(line.decode("utf-8"))
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


def _short_repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a foreign type may raise anything
        text = f"<{type(value).__name__} object>"
    return text if len(text) <= _REPR_LENGTH else f"{text[:_REPR_LENGTH]}..."


class _LineFile:
    """Appends lines to a file; each is in the operating system's hands soon, though not each by a write of its own.

    A line that comes after a pause is written at once. In a burst, lines gather: the next line writes them when
    the last write is 0.2 s ago, and so does a thread, for a burst that ends.

    Attributes:
      written: lines that the operating system has taken.
      dropped: lines that it has not and will not.
    """

    def __init__(self, path: Path) -> None:
        self.written = 0
        self.dropped = 0
        self._path = path
        self._descriptor = _open_to_write(path)
        # Reentrant: a signal handler or a finalizer may close the writer inside of a call.
        self._lock = threading.RLock()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._last_write = -float("inf")
        self._torn = False
        self._unbuffered = False
        self._waiting = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        atexit.register(self.unbuffer)

    def append(self, line: bytes) -> None:
        """Write `line`, which ends in a newline, now or soon."""
        with self._lock:
            if self._closed.is_set():
                self.drop(1, "it is closed. Close it after the program: call jax.effects_barrier() before")
                return
            self._pending.append(line)
            self._pending_bytes += len(line)
            if self._is_due():
                self.flush()
            elif not self._waiting.is_set():
                self._flush_later()

    def drop(self, lines: int, reason: str) -> None:
        """Count lines that will not be in the file, and warn about the first."""
        with self._lock:
            first = not self.dropped
            self.dropped += lines
        if first:
            warn(
                f"jaxtap: JSONLWriter({str(self._path)!r}) cannot write an event: {reason}. The watched program is not "
                "affected; further such events are counted in JSONLWriter.dropped, not warned about.",
                stacklevel=4,
            )

    def flush(self) -> None:
        """Write what is pending."""
        with self._lock:
            if not self._pending:
                return
            lines, self._pending, self._pending_bytes = self._pending, [], 0
            self._waiting.clear()
            self._last_write = time.monotonic()
            self._write(b"".join(lines))

    def unbuffer(self) -> None:
        """Write what is pending, and from now on each line at once: the interpreter is about to exit."""
        with self._lock:
            self._unbuffered = True
            self.flush()

    def close(self) -> None:
        """Write what is pending and close the file."""
        with self._lock:
            if self._closed.is_set():
                return
            self.flush()
            self._closed.set()
            self._waiting.set()  # lets the thread see that it is closed
            atexit.unregister(self.unbuffer)
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def _is_due(self) -> bool:
        return (
            self._unbuffered
            or self._pending_bytes >= _FLUSH_BYTES
            or time.monotonic() - self._last_write >= _FLUSH_AFTER_S
        )

    def _flush_later(self) -> None:
        self._waiting.set()
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name=f"jaxtap {self._path.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process may start no more threads
            self.unbuffer()

    def _run(self) -> None:
        while True:
            self._waiting.wait()
            if self._closed.wait(_FLUSH_AFTER_S):
                return
            self.flush()

    def _write(self, data: bytes) -> None:
        done = 0
        reason = "interrupted"
        try:
            if self._torn:
                os.write(self._descriptor, b"\n")
                self._torn = False
            while done < len(data):
                done += os.write(self._descriptor, memoryview(data)[done:])
        except OSError as error:
            reason = f"{error}. Free the disk or write to another one"
            if error.errno == errno.EBADF:
                self._descriptor = -1  # someone closed it; the number may soon be that of another file
        finally:
            self._count(data, done, reason)

    def _count(self, data: bytes, done: int, reason: str) -> None:
        self.written += data.count(b"\n", 0, done)
        if done:
            self._torn = not data.endswith(b"\n", 0, done)
        if done < len(data):
            self.drop(data.count(b"\n", done), reason)


def _open_to_write(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError as error:
        message = "No such folder; create the folder of the JSONLWriter's file first"
        raise FileNotFoundError(errno.ENOENT, message, str(path)) from error
