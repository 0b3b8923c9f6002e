"""What `jaxtap.testing` says is the same, and what it notices."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap as tap
from jaxtap.testing import Clock, assert_identical, assert_untouched, recorded, wait

pytest_plugins = ["jaxtap.testing.fixtures"]


def program(x: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda i, x: x * 2.0, x)


DIFFERENT = {
    "value": (
        {"a": [1.0, 2.0]},
        {"a": [1.0, 3.0]},
        "['a'][1] differs in 1 of 1 elements, first at (): 2.0",
    ),
    "sign of zero": (np.float32([[1, 0]]), np.float32([[1, -0.0]]), "differs in 1 of 2 elements, first at (0, 1): 0.0"),
    "last bit": (np.nextafter(np.float32(1), np.float32(2)), np.float32(1), "differs in 1 of 1"),
    "dtype": (np.int32(1), np.float32(1), "the result is int32[], expected float32[]"),
    "shape": (np.zeros((2, 1)), np.zeros(2), "is float64[2, 1], expected float64[2]"),
    "leaves": ((1, 2), (1,), "there are 2 leaves, expected 1"),
    "keys": (jax.random.key(0), jax.random.key(1), "differs in 1 of 2 elements"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_said(name: str) -> None:
    one, other, message = DIFFERENT[name]
    assert_identical(one, one)
    assert_identical(other, other)
    with pytest.raises(AssertionError, match=re.escape(message)):
        assert_identical(one, other)


def test_nan_is_itself() -> None:
    assert_identical({"x": jnp.array([jnp.nan, 1.0])}, {"x": np.float32([np.nan, 1.0])})


def test_recorded() -> None:
    run = recorded(jax.jit(program), 1.0, select=lambda leaves: leaves[-1], sample_every=2)
    assert float(run.result) == 16.0 and [loop.delivered for loop in run.report.loops] == [2]
    assert [(event.step, float(event.value)) for event in run.events] == [(0, 2.0), (2, 8.0)]
    with pytest.raises(ValueError, match="sample_every"):
        recorded(program, 1.0, sample_every=0)


def test_a_lens_that_changes_something_is_noticed() -> None:
    assert len(assert_untouched(jax.jit(program), 1.0).events) == 4
    shift = [0.0]

    @contextlib.contextmanager
    def meddling(left: float) -> Iterator[tap.FlightRecorder]:
        shift[0] = 1.0
        try:
            with tap.record() as recorder:
                yield recorder
        finally:
            shift[0] = left

    def shifted(x: Any) -> Any:
        return program(x) + shift[0]

    for left in (0.0, 1.0):
        shift[0] = 0.0
        with pytest.raises(AssertionError, match=re.escape("first at (): 17.0, expected 16.0")):
            assert_untouched(shifted, 1.0, lens=lambda left=left: meddling(left))
    stays = []

    @contextlib.contextmanager
    def staying() -> Iterator[tap.FlightRecorder]:
        with tap.record() as recorder:
            yield recorder
        stays.append(1)

    def prints(x: Any) -> Any:
        if stays:
            jax.debug.callback(lambda: None)
        return program(x)

    with pytest.raises(AssertionError, match="the function has effects that it did not have before"):
        assert_untouched(prints, 1.0, lens=staying)


def test_the_clock(jaxtap_clock: Clock) -> None:
    first = recorded(program, 1.0).events
    jaxtap_clock.advance(2.5)
    second = recorded(program, 1.0).events
    assert {event.time for event in first} == {0.0} and {event.time for event in second} == {2.5}
    with Clock(7.0):
        assert {event.time for event in recorded(program, 1.0).events} == {7.0}
    assert {event.time for event in recorded(program, 1.0).events} == {2.5}


def test_the_clock_is_put_back() -> None:
    assert recorded(program, 1.0).events[0].time > 1e9


def test_the_recorder(jaxtap_recorder: tap.FlightRecorder) -> None:
    jax.jit(program)(1.0)
    wait()
    assert [event.step for event in jaxtap_recorder.events] == [0, 1, 2, 3]
