"""A program under a lens: what it returns, what was seen, and whether it is what it was without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

from jaxtap._api import record
from jaxtap._events import TapEvent
from jaxtap._report import Report
from jaxtap._router import settle
from jaxtap.testing._bits import assert_identical


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A run under a lens.

    Attributes:
      result: what the program has returned.
      events: all that was seen.
      report: what was seen and what was not.

    >>> import jax
    >>> from jaxtap.testing import recorded
    >>> run = recorded(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, x), 0.0)
    >>> float(run.result), len(run.events), run.report.ok
    (3.0, 3, True)
    """

    result: Any
    events: list[TapEvent]
    report: Report


def recorded(f: Callable[..., Any], *args: Any, **options: Any) -> Recorded:
    """Run a function under a lens, and wait for all that it sends.

    Args:
      f: a function that runs JAX.
      *args: what it is called with.
      **options: those of `jaxtap.record`, such as `select`.

    Raises:
      Exception: what `f` raises.

    >>> import jax
    >>> from jaxtap.testing import recorded
    >>> def program(n):
    ...     return jax.lax.fori_loop(0, 3, lambda i, total: total + i, n)
    >>> run = recorded(program, 10, select=lambda leaves: leaves[1])
    >>> int(run.result), [(event.path, event.step, int(event.value)) for event in run.events]
    (13, [('scan[0]', 0, 10), ('scan[0]', 1, 11), ('scan[0]', 2, 13)])
    """
    with record(**options) as recorder:
        result = jax.block_until_ready(f(*args))
    return Recorded(result, list(recorder.events), recorder.report())


def assert_untouched(
    f: Callable[..., Any], *args: Any, lens: Callable[[], AbstractContextManager[Any]] = record
) -> Any:
    """A function returns the same bits under a lens as without, and nothing of the lens stays in it.

    It is run before, under, and after the lens; while it is closed, nothing more arrives, and what is compiled of the
    function holds no host call of its own.

    Args:
      f: a function that runs JAX, and returns arrays.
      *args: what it is called with.
      lens: makes the context, such as `lambda: jaxtap.record(select="step_size")`, or a watch of an adapter.

    Returns:
      What the context was bound to: a recorder, or a watch.

    Raises:
      AssertionError: if the result differs, or something stays behind.

    >>> import jax
    >>> from jaxtap.testing import assert_untouched
    >>> recorder = assert_untouched(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x * 2.0, x), 1.0)
    >>> len(recorder.events)
    3
    """
    bare = jax.block_until_ready(f(*args))
    before = _effects(f, args)
    with lens() as seen:
        watched = jax.block_until_ready(f(*args))
    assert_identical(watched, bare)
    count = seen.report()
    assert_identical(jax.block_until_ready(f(*args)), bare)
    wait()
    assert seen.report() == count, "something arrived after the lens was closed"
    assert _effects(f, args) == before, "the function has effects that it did not have before"
    return seen


def _effects(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    # JAX keeps what it has traced of a function: of a new one around it, what is inside as it would run now.
    return sorted(map(repr, jax.make_jaxpr(lambda *args: f(*args))(*args).effects))


def wait() -> None:
    """Wait until all that the programs of this thread have sent has arrived, and the functions called with it have run.

    Leaving a lens does so by itself.

    >>> import jax, jaxtap
    >>> from jaxtap.testing import wait
    >>> with jaxtap.record() as rec:
    ...     total = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, x))(0.0)
    ...     wait()
    ...     len(rec.events)
    3
    """
    settle()
