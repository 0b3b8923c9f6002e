"""Signals whose handlers raise, as Ctrl-C does: put off where half a step is worse than none, and given back."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

_OURS = (os.path.dirname(__file__), os.path.dirname(np.__file__))
_INTERRUPT = re.compile(r"^(KeyboardInterrupt|SystemExit)(?:: (.*))?$", re.MULTILINE)
# What a handler has raised while an event was received, on its way through XLA.
_under_way: list[BaseException] = []


@contextlib.contextmanager
def uninterrupted() -> Generator[None]:
    """Put off the program's handlers of SIGINT and SIGTERM until the block ends. Only the main thread has any."""
    put_off: list[tuple[Any, tuple[Any, ...]]] = []
    before: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    before[number] = handler
                    # In an interpreter inside another, no signal is heard.
                    with contextlib.suppress(ValueError):
                        signal.signal(number, lambda *args, handler=handler: put_off.append((handler, args)))
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)
        for handler, args in put_off[:1]:
            handler(*args)


def is_of_program(error: BaseException) -> bool:
    """Whether an error in code of jaxtap's own is none of its making: a signal handler of the program has raised it."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if not isinstance(error, Exception):
        return True
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and not traceback.tb_frame.f_code.co_filename.startswith(_OURS)


def send(error: BaseException) -> None:
    """Remember an error of the program's that goes through XLA, which makes one of its own of it."""
    _under_way[:] = [error]


def give_back(error: BaseException) -> None:
    """Raise what XLA has made an error of its own of, if it is that."""
    if not isinstance(error, jax.errors.JaxRuntimeError):
        return
    sent = _under_way.pop() if _under_way else None
    if sent is not None and type(sent).__name__ in str(error):
        raise sent from error
    # It may have come in JAX's own code around the callback; then only its words are there.
    if found := _INTERRUPT.search(str(error)):
        kind, words = found.groups()
        if kind == "KeyboardInterrupt":
            raise KeyboardInterrupt from error
        raise SystemExit(int(words) if words and words.isdecimal() else words) from error
