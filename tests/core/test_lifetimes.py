"""What has been dropped is gone: no program, cache, hook or thread keeps a recorder, a lens or a callback alive."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap as tap


@jax.jit
def program(v: Any) -> Any:
    """Compiled through each lens here, and kept by JAX for good."""
    return lax.scan(lambda c, x: (jnp.sin(c) + x, c), v, jnp.arange(3.0))[0]


class OnStep:
    """A callback that can be referred to weakly, and holds a value of its own."""

    def __init__(self) -> None:
        self.events: list[tap.TapEvent] = []

    def __call__(self, event: tap.TapEvent) -> None:
        self.events.append(event)


def over_a_block(**lens: Any) -> list[Any]:
    on_step = OnStep()
    with tap.record(on_step=on_step, **lens) as rec:
        program(1.0)
    assert len(rec.events) >= 3 or "taps" in lens
    return [rec, on_step, rec.account, rec.report()]


def after_an_error() -> list[Any]:
    with pytest.raises(KeyError), tap.record() as rec:
        program(1.0)
        raise KeyError
    return [rec]


def left_open() -> list[Any]:
    def watched() -> Any:
        with tap.record() as rec:
            program(1.0)
            yield rec

    return [next(watched())]


def around_a_function(**lens: Any) -> list[Any]:
    g, rec = tap.record(program, **lens)
    g(1.0)
    assert len(rec.events) >= 3
    return [g, rec]


def with_a_callback() -> list[Any]:
    on_step = OnStep()
    g = tap.verbose(program, on_step=on_step)
    g(1.0)
    assert len(on_step.events) == 3
    return [g, on_step]


def in_a_file(path: Path) -> list[Any]:
    writer = tap.JSONLWriter(path)
    tap.verbose(program, on_step=writer)(1.0)
    return [writer]


def of_compiles() -> list[Any]:
    with tap.compiles() as log:
        jax.jit(lambda x: x + 1.0)(1.0)
    return [log]


WAYS: dict[str, Callable[[Path], list[Any]]] = {
    "over a block": lambda path: over_a_block(),
    "by name": lambda path: over_a_block(select="c"),
    "bounded": lambda path: over_a_block(capacity=5),
    "in all threads": lambda path: over_a_block(threads="all"),
    "with what is compiled": lambda path: over_a_block(trace=True),
    "with a tripwire": lambda path: over_a_block(taps=[tap.watch_nan()]),
    "on an equation": lambda path: over_a_block(taps=[tap.on("sin")]),
    "after an error": lambda path: after_an_error(),
    "left open by a generator": lambda path: left_open(),
    "around a function": lambda path: around_a_function(),
    "around a function, with what is compiled": lambda path: around_a_function(trace=True),
    "a callback": lambda path: with_a_callback(),
    "a file": lambda path: in_a_file(path / "events.jsonl"),
    "a log": lambda path: of_compiles(),
}


@pytest.fixture
def few_objects() -> Iterator[None]:
    """What other tests have left is not looked through each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("way", WAYS)
def test_what_is_dropped_is_gone(way: str, tmp_path: Path) -> None:
    program(1.0)
    for _ in range(2):
        held = WAYS[way](tmp_path)
        dead = [weakref.ref(each) for each in held if type(each).__name__ != "method"]
        del held
        gc.collect()
        assert dead and [ref() for ref in dead] == [None] * len(dead)


def test_a_program_that_was_traced_through_a_lens_keeps_it() -> None:
    on_step = OnStep()
    compiled = jax.jit(tap.verbose(program, on_step=on_step)).lower(1.0).compile()
    gc.collect()
    compiled(1.0)
    jax.effects_barrier()
    assert [event.step for event in on_step.events] == [0, 1, 2]


def test_a_gradient_that_is_taken_when_the_function_is_gone() -> None:
    on_step = OnStep()
    _, pullback = jax.vjp(tap.verbose(program, on_step=on_step, backward=True), 1.0)
    gc.collect()
    pullback(1.0)
    jax.effects_barrier()
    end = time.monotonic() + 10.0
    while len(on_step.events) < 6 and time.monotonic() < end:
        time.sleep(0.01)
    assert [event.step for event in on_step.events if event.kind == "backward"] == [2, 1, 0]
