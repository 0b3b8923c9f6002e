"""Telemetry never breaks the program that it watches: warnings that cannot raise, and a guard for user code."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any


class JaxtapWarning(UserWarning):
    """Something about the telemetry, never about the watched program, is not as it should be."""


def warn(message: str, stacklevel: int = 2) -> None:
    """Warn without ever raising: where warnings are errors, the message goes to stderr instead."""
    try:
        warnings.warn(message, JaxtapWarning, stacklevel=stacklevel + 1)
    except Exception:  # noqa: BLE001 - the filter "error" turns the warning into any exception
        say(f"[tap] warning: {message}")


def say(line: str) -> None:
    """Print one line to stderr; a closed or broken stderr is no reason to fail."""
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


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
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self.failed(what, error)
            return None

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure of `what`, and warn if it is the first."""
        first = what not in self.failures
        self.failures[what] = self.failures.get(what, 0) + 1
        if first:
            warn(
                f"jaxtap: {what} raised {type(error).__name__}: {error}. The watched program is not affected; "
                f"further failures of {what} are counted in report(), not warned about.",
                stacklevel=3,
            )
