"""Telemetry never breaks the program that it watches: warnings that cannot raise, and a guard for user code."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any


class JaxtapWarning(UserWarning):
    """Something about the telemetry, never about the watched program, is not as it should be.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as told, record():
    ...     pass
    >>> told[0].category is JaxtapWarning, str(told[0].message)[:24]
    (True, 'jaxtap: no loop was seen')
    """


def warn(message: str, stacklevel: int = 2) -> None:
    """Warn without ever raising: where warnings are errors, the message goes to stderr instead."""
    try:
        warnings.warn(message, JaxtapWarning, stacklevel=stacklevel + 1)
    except Exception:  # noqa: BLE001 - the filter "error" turns the warning into any exception
        say(f"[tap] warning: {message}")


def say(line: str) -> None:
    """Print one line to stderr; a closed or broken stderr is no reason to fail."""
    # Where there is none, print would take stdout, which belongs to the program.
    if sys.stderr is not None:
        with contextlib.suppress(Exception):
            print(line, file=sys.stderr, flush=True)


def described(error: BaseException) -> str:
    """An error in words; some cannot be told."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - `__str__` may raise anything
        return type(error).__name__


class Guard:
    """Calls user functions; the first failure of each is warned about, every failure is counted.

    Attributes:
      failures: how often each named function has raised.
    """

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}

    def call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, or None where it raised."""
        try:
            return function(*args)
        except BaseException as error:
            # Python interrupts the main thread alone: elsewhere, whatever is raised is of the function's making.
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            self.failed(what, error)
            return None

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure of `what`, and warn if it is the first."""
        first = what not in self.failures
        self.failures[what] = self.failures.get(what, 0) + 1
        if first:
            warn(
                f"jaxtap: {what} raised {described(error)}. The watched program is not affected; "
                f"further failures of {what} are counted in report(), not warned about.",
                stacklevel=3,
            )
