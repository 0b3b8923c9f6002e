"""Ctrl-C between any two lines of opening and closing a lens: nothing of it is left."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.core import primitives

import jaxtap as tap
from jaxtap import _dispatch


def body(c: Any, x: Any) -> Any:
    return c + x, None


@jax.jit
def program(v: Any) -> Any:
    return lax.scan(body, v, jnp.arange(3.0))[0]


def hooks() -> list[Any]:
    return [vars(getattr(primitives, name)).get("bind") for name in ("scan_p", "while_p", "cond_p", "remat_p")]


def interrupted(action: Callable[[], Any], at: int) -> bool:
    """Run `action` and press Ctrl-C at this line of jaxtap's own; whether there were so many."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_globals.get("__name__", "").startswith("jaxtap."):
            return None
        if event == "line":
            lines += 1
            if lines == at:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines >= at


def hold(**lens: Any) -> None:
    with tap.record(**lens):
        pass


def hold_and_run(**lens: Any) -> None:
    with tap.record(**lens):
        program(1.0)


def hold_and_make_what_waits() -> None:
    _dispatch._behind.cache_clear()
    hold()


def settings() -> tuple[Any, ...]:
    return jax.config.jax_disable_jit, jax.config.jax_transfer_guard, jax.config.jax_enable_x64


ACTIONS: dict[str, Callable[[], Any]] = {
    "over a block": hold,
    "in all threads": lambda: hold(threads="all"),
    "with what is compiled": lambda: hold(trace=True),
    "around a function": lambda: tap.record(lambda: 1.0)[0](),
    "while it is read": hold_and_run,
    "while what waits is made": hold_and_make_what_waits,
}


# Where Ctrl-C comes while an object is taken away, Python drops it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ACTIONS)
def test_an_interrupt_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a watch, whose programs each lens waits for.
    monkeypatch.setattr(_dispatch.programs, "are_there", True)
    before, at, xs = (hooks(), settings()), 0, jnp.arange(3.0)
    program(1.0)
    hold_and_run()
    bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tap.JaxtapWarning)
        while interrupted(ACTIONS[name], at := at + 1):
            clean = (hooks(), settings()) == before
            with tap.record() as rec:
                program(1.0)
                # What has been compiled sends by itself; this has to be seen anew.
                lax.scan(body, 1.0, xs)
            if not clean or (hooks(), settings()) != before or [event.step for event in rec.events] != [0, 1, 2] * 2:
                bad.append((at, clean, len(rec.events)))
                tap.emergency_restore()
    assert at > 20 and bad == []
