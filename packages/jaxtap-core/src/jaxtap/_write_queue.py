"""Events on their way to a file, on a thread of the file's own."""

from __future__ import annotations

import atexit
import collections
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtap._line_file import LineFile

# How much may wait to be written.
MOST_BYTES = 64 << 20


class Item(NamedTuple):
    """Events to be written.

    Attributes:
      lines: makes their lines, each with its end.
      events: how many there are.
      nbytes: the memory that they take.
    """

    lines: Callable[[], bytes]
    events: int
    nbytes: int


class WriteQueue:
    """Writes what is put, in order, on a daemon thread that is started when the first is put.

    Putting never waits. When more than 64 MiB wait to be written, the oldest are dropped.

    Args:
      file: where to.
    """

    def __init__(self, file: LineFile) -> None:
        self._file = file
        self._items: collections.deque[Item] = collections.deque()
        self._nbytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = self._closed = self._direct = False
        atexit.register(self.exit)
        _queues.add(self)

    @property
    def is_idle(self) -> bool:
        """Whether all that was put is written."""
        return not self._items and not self._busy

    def put(self, item: Item) -> None:
        """Write events soon."""
        with self._changed:
            direct = self._closed or self._direct or not self._started()
            dropped = 0
            if not direct:
                self._items.append(item)
                self._nbytes += item.nbytes
                dropped = self._dropped()
                self._changed.notify_all()
        if dropped:
            self._file.drop(
                dropped, f"{MOST_BYTES >> 20} MiB of events wait to be written already, the oldest are dropped"
            )
        if direct:
            self._write(item)

    def _dropped(self) -> int:
        count = 0
        while self._nbytes > MOST_BYTES and len(self._items) > 1:
            item = self._items.popleft()
            self._nbytes -= item.nbytes
            count += item.events
        return count

    def _started(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jaxtap writer", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process may start no more threads
                self._thread = None
        return self._thread is not None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not self._items and not self._closed:
                    self._changed.wait()
                if not self._items:
                    return
                item = self._items.popleft()
                self._nbytes -= item.nbytes
                self._busy = True
            self._write(item)

    def _write(self, item: Item) -> None:
        try:
            lines = item.lines()
        except Exception as error:  # noqa: BLE001 - a value may hold anything
            self._file.drop(item.events, f"{type(error).__name__}: {error}")
        else:
            self._file.append(lines)

    def drain(self) -> None:
        """Wait until all that was put is written."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            while not self.is_idle and self._thread is not None and self._thread.is_alive():
                self._changed.wait(0.1)

    def exit(self) -> None:
        """The interpreter is about to exit: write at once from now on."""
        self.drain()
        with self._changed:
            self._direct = True
        self._file.exit()

    def forked(self) -> None:
        """This is the child of a fork, which has no thread: what waits is the parent's to write."""
        self._items.clear()
        self._nbytes, self._changed, self._thread = 0, threading.Condition(), None
        self._busy, self._direct = False, True

    def close(self) -> None:
        """Write all that was put, end the thread and close the file."""
        self.drain()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        atexit.unregister(self.exit)
        self._file.close()


_queues: weakref.WeakSet[WriteQueue] = weakref.WeakSet()


def _forked() -> None:
    for queue in list(_queues):
        queue.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def joined(lines: list[Any]) -> bytes:
    """Lines of text with their ends, as bytes."""
    return ("\n".join(lines) + "\n").encode("ascii") if lines else b""
