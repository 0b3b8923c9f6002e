"""Events that wait in buffers: the same as those that cross one by one, in the same order, and soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core.waiting import PROGRAMS, STEPS, bits, by_address, events_of, leapfrog
from jax import lax

import jaxtap as tap
from jaxtap import _emit, _flush
from jaxtap._pace import TARGET_S, Pace

BUFFERS = {
    "adaptive": {},
    "fixed": {"buffer": 7},
    "endless": {"buffer": 10**6},
    "small": {"buffer": 50, "buffer_bytes": 600},
}


@pytest.fixture(scope="module")
def one_by_one() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_events_in_the_same_order(program: str, buffer: str, one_by_one: dict[str, Any]) -> None:
    f, options = PROGRAMS[program]
    if program not in one_by_one:
        one_by_one[program] = events_of(f, **options, buffer=1)
    expected_result, expected = one_by_one[program]
    result, found = events_of(f, **options, **BUFFERS[buffer])
    # What crosses at once in one step of several loops and points may overtake one another.
    assert by_address(found) == by_address(expected)
    assert bits(result) == bits(expected_result)


def crossings(f: Callable[[Any], Any], **options: Any) -> int:
    with tap.record(**options) as rec:
        jax.jit(f)(jnp.ones(4))
    return len({event.time for event in rec.events})


def test_many_events_cross_at_once() -> None:
    assert crossings(leapfrog, buffer=1) > STEPS
    # The inner loops' steps count, and each outer step is a piece.
    assert crossings(leapfrog, buffer=60) <= STEPS * 6 / 60 + 1
    assert crossings(leapfrog, buffer=10**6) == 1


@pytest.mark.parametrize(
    "options, text", [({"buffer": 0}, "buffer must be"), ({"buffer_bytes": 0}, "buffer_bytes must be")]
)
def test_what_is_not_allowed(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tap.record(**options)


def test_what_led_up_to_a_trip_comes_first() -> None:
    def f(c: Any) -> Any:
        return lax.fori_loop(0, 100, lambda i, c: c + 1.0, c)

    with tap.record(select=lambda leaves: leaves[-1], taps=[tap.trip(lambda leaves: leaves[-1] == 57.0)]) as rec:
        jax.jit(f)(0.0)
    # The trip's own event is of step 56, too.
    assert [event.step for event in rec.events] == [*range(56), 56, *range(56, 100)]


def test_a_lens_that_sees_nothing_adds_nothing() -> None:
    def text() -> str:
        return jax.jit(lambda c: leapfrog(c)).lower(jnp.ones(4)).as_text()

    bare = text()
    with pytest.warns(tap.JaxtapWarning, match="none sent"), tap.record(where="nothing[*]"):
        silent = text()
    assert silent == bare


def test_only_what_is_sampled_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    for host_end in (_emit.Entry, _flush.Flush):
        receive = host_end.__call__

        def count(self: Any, *arrays: Any, receive: Any = receive) -> Any:
            moved.append(sum(array.nbytes for array in arrays))
            return receive(self, *arrays)

        monkeypatch.setattr(host_end, "__call__", count)

    def f(c: Any) -> Any:
        return lax.scan(lambda c, _: (c * 0.5 + 1.0, None), c, None, length=1000)[0]

    with tap.record(sample_every=100) as rec:
        jax.block_until_ready(jax.jit(f)(jnp.ones(1 << 18)))
    payload = sum(leaf.nbytes for event in rec.events for leaf in event.value)
    assert len(rec.events) == 10 and payload == 10 << 20
    assert sum(moved) <= 1.1 * payload


# --- When they come ------------------------------------------------------------------------------------------


def clock(*seconds: float) -> Callable[[], float]:
    times: Iterator[float] = iter(seconds)
    return lambda: next(times)


def test_the_first_event_comes_at_once_and_intervals_double() -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    intervals = [pace.first, pace.after(1, first=True)]
    for _ in range(8):
        pace.goes_on()
        now[0] += 1e-6 * intervals[-1]
        intervals.append(pace.after(intervals[-1]))
    assert intervals == [1, 1, 2, 4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("step_s", [1e-7, 1e-6, 1e-4, 1e-3, 0.1, 10.0])
def test_flushes_are_a_few_milliseconds_apart(step_s: float) -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    interval = pace.after(1, first=True)
    for _ in range(40):
        pace.goes_on()
        now[0] += step_s * interval
        interval = pace.after(interval)
    assert interval * step_s <= max(TARGET_S, step_s) * 1.001
    assert (interval + 1) * step_s >= TARGET_S * 0.999


def test_steps_that_become_slow_are_told_of_soon() -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    interval = pace.after(1, first=True)
    for _ in range(20):
        pace.goes_on()
        now[0] += 1e-5 * interval
        interval = pace.after(interval)
    pace.goes_on()
    now[0] += 1e-2 * interval
    assert pace.after(interval) == 1


def test_slow_steps_are_told_of_one_by_one() -> None:
    def body(c: Any, _: Any) -> Any:
        return lax.fori_loop(0, 40, lambda i, c: jnp.tanh(c @ c) * 0.1, c), c[0, 0]

    with tap.record(max_depth=0, select=lambda leaves: leaves[0][0]) as rec:
        jax.block_until_ready(jax.jit(lambda c: lax.scan(body, c, None, length=6))(jnp.ones((400, 400))))
    arrivals = [event.time for event in rec.events]
    assert len(arrivals) == len(set(arrivals)) == 6


def test_what_led_up_to_an_error_has_come() -> None:
    def check(i: Any) -> Any:
        if i == 7:
            raise ValueError("gives up")
        return i

    def body(c: Any, i: Any) -> Any:
        return c + jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.int32), i), None

    with pytest.raises(jax.errors.JaxRuntimeError, match="gives up"), tap.record() as rec:
        jax.block_until_ready(jax.jit(lambda c: lax.scan(body, c, jnp.arange(20)))(0))
    assert [event.step for event in rec.events] == list(range(7))


def test_fast_steps_are_told_of_often() -> None:
    def f(c: Any) -> Any:
        return lax.fori_loop(0, 300_000, lambda i, c: jnp.sin(c) + 0.1, c)

    gaps = []
    for _ in range(3):
        with tap.record(select=lambda leaves: leaves[-1][0]) as rec:
            jax.block_until_ready(jax.jit(f)(jnp.ones(64)))
        assert len(rec.events) == 300_000
        times = np.unique([event.time for event in rec.events])
        gaps.append(np.diff(times).max())
    # A busy machine may stop a process for longer than that, but not each time.
    assert min(gaps) < 0.1
