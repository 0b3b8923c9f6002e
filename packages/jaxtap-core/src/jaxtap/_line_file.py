"""Lines that are in the operating system's hands soon, though not each by a write of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from jaxtap._guard import warn

# A burst is written five times a second: nothing to see in a profile, and well within the promised second.
_FLUSH_AFTER_S = 0.2
_FLUSH_BYTES = 1 << 16


class LineFile:
    """Appends lines to a file; each is in the operating system's hands soon, though not each by a write of its own.

    A line that comes after a pause is written at once. In a burst, lines gather: the next line writes them when
    the last write is 0.2 s ago, and so does a thread, for a burst that ends.

    Args:
      path: the file.
      first: its first line.
      last: makes its last line.

    Attributes:
      written: lines that the operating system has taken.
      dropped: lines that it has not and will not.
    """

    def __init__(self, path: Path, first: bytes, last: Callable[[], bytes]) -> None:
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
        self._last: Callable[[], bytes] | None = last
        self._process = os.getpid()
        self._write_uncounted(first)
        _files.add(self)

    def append(self, line: bytes) -> None:
        """Write `line`, which ends in a newline, now or soon. It may be several."""
        with self._lock:
            if self._closed.is_set():
                self.drop(
                    line.count(b"\n"), "it is closed. Close it after the program: call jax.effects_barrier() before"
                )
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

    def exit(self) -> None:
        """The interpreter is about to exit, and JAX to wait for callbacks: write each line at once from now on."""
        self.unbuffer()
        self.end()

    def end(self) -> None:
        """Write the last line, if this process has begun the file and has not ended it yet."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None and os.getpid() == self._process:
                self._write_uncounted(last())

    def unbuffer(self) -> None:
        """Write what is pending, and from now on each line at once."""
        with self._lock:
            self._unbuffered = True
            self.flush()

    def close(self) -> None:
        """Write what is pending and close the file."""
        with self._lock:
            if self._closed.is_set():
                return
            self.flush()
            self.end()
            self._closed.set()
            self._waiting.set()  # lets the thread see that it is closed
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def forked(self) -> None:
        """This is the child of a fork: what is pending is the parent's to write, and a child may end without a word."""
        self._lock = threading.RLock()
        self._waiting, self._thread = threading.Event(), None
        self._pending, self._pending_bytes = [], 0
        self._unbuffered = True

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

    def _write_uncounted(self, line: bytes) -> None:
        """Write a line that is no event; if that fails, an event will fail, too, and say so."""
        with contextlib.suppress(OSError):
            line = b"\n" + line if self._torn else line
            self._torn = os.write(self._descriptor, line) < len(line)

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


_files: weakref.WeakSet[LineFile] = weakref.WeakSet()


def _forked() -> None:
    for file in list(_files):
        file.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _open_to_write(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        return _above_standard(os.open(path, flags, 0o666))
    except FileNotFoundError as error:
        message = "No such folder; create the folder of the JSONLWriter's file first"
        raise FileNotFoundError(errno.ENOENT, message, str(path)) from error


def _above_standard(descriptor: int) -> int:
    """A descriptor that is no standard one: where those are closed, C++ code writes to their numbers all the same."""
    if descriptor > 2:
        return descriptor
    try:
        return _above_standard(os.dup(descriptor))
    finally:
        os.close(descriptor)
