"""Several lenses, several threads, and user functions that misbehave."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap as tap


def loop(v: Any) -> Any:
    return lax.scan(lambda c, x: (c + x, c), v, jnp.arange(5.0))


jitted = jax.jit(loop)


@pytest.mark.parametrize("f", [loop, jitted], ids=["eager", "jit"])
def test_nested_lenses_both_see(f: Any) -> None:
    with tap.record(select=lambda leaves: leaves[0] * 2.0) as outer:
        with tap.record() as inner, tap.record() as twin:
            f(1.0)
        f(1.0)
    assert len(outer.events) == 10 and len(inner.events) == len(twin.events) == 5
    assert [float(e.value) for e in outer.events[:5]] == [2 * float(e.value[0]) for e in inner.events]


def test_two_threads_each_see_their_own() -> None:
    found: dict[int, Any] = {}
    start = threading.Barrier(2)

    def watch(n: int) -> None:
        with tap.record() as rec:
            start.wait()
            for _ in range(20):
                jitted(float(n))
        found[n] = rec

    threads = [threading.Thread(target=watch, args=(n,)) for n in (1, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, rec in found.items():
        assert len(rec.events) == 100
        assert all(n <= float(event.value[0]) < n + 100 for event in rec.events)


def elsewhere(f: Any, *args: Any) -> None:
    thread = threading.Thread(target=f, args=args)
    thread.start()
    thread.join()


def test_other_threads_are_left_alone() -> None:
    with pytest.warns(tap.JaxtapWarning, match='pass threads="all"'), tap.record() as rec:
        elsewhere(lambda: loop(1.0))
    assert not rec.events


def test_all_threads_are_seen_when_asked_for() -> None:
    jitted(1.0)
    with tap.record(threads="all") as rec:
        elsewhere(loop, 1.0)
        elsewhere(jitted, 1.0)
        jitted(1.0)
    assert len(rec.events) == 15
    elsewhere(jitted, 1.0)
    assert len(rec.events) == 15


def test_on_step_may_run_jax() -> None:
    seen: list[float] = []

    def on_step(event: tap.TapEvent) -> None:
        seen.append(float(jax.jit(jnp.sin)(event.value[0])))

    with tap.record(on_step=on_step):
        jitted(1.0)
    assert len(seen) == 5


def test_on_step_may_hold_a_lens() -> None:
    inner: list[int] = []

    def on_step(event: tap.TapEvent) -> None:
        with tap.record() as rec:
            loop(event.value[0])
        inner.append(len(rec.events))

    with tap.record(on_step=on_step) as rec:
        jitted(1.0)
    assert inner == [5] * 5 and len(rec.events) == 5


class Odd(Exception):
    """Not one of Python's own."""


@pytest.mark.parametrize("name", ["on_step", "alert", "on_ys", "alert_ys"])
def test_a_callback_that_raises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(event: tap.TapEvent) -> None:
        raise Odd(event.step)

    bare = loop(1.0)
    # The tests' own filter turns warnings into errors, and jaxtap must not raise: it prints instead.
    with tap.record(**{name: fails}) as rec:
        result = loop(1.0)
    assert jax.tree.map(jnp.array_equal, bare, result) == (True, True)
    assert rec.report().failures == {name: 5}
    assert capsys.readouterr().err.count(f"{name} raised Odd: 0") == 1


def test_a_bool_that_raises_is_a_failed_alert() -> None:
    with (
        pytest.warns(tap.JaxtapWarning, match="alert raised ValueError"),
        tap.record(alert=lambda e: jnp.ones(3)) as rec,
    ):
        loop(1.0)
    assert rec.report().failures == {"alert": 5}


def test_live() -> None:
    arrived: list[float] = []
    begun: list[float] = []

    def slow(i: Any) -> Any:
        begun.append(time.time())
        time.sleep(0.1)
        return i

    def body(c: Any, i: Any) -> Any:
        return c + jax.pure_callback(slow, jax.ShapeDtypeStruct((), jnp.int32), i), None

    with tap.record(on_step=lambda event: arrived.append(time.time())):
        lax.scan(body, 0, jnp.arange(5))
    # Each step is on the host before the next one ends, 100 ms after it began.
    assert all(a < b + 0.1 for a, b in zip(arrived[:-1], begun[1:], strict=True))


def test_alert_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def accumulator(x0: Any) -> Any:
        return lax.scan(lambda c, x: (c + x, c), x0, jnp.linspace(0.0, 2.0, 10, dtype=jnp.float32))

    lens: dict[str, Any] = {
        "select": lambda leaves: leaves[0],
        "alert": lambda e: f"carry={float(e.value):.2f} exceeded 5.0" if float(e.value) > 5.0 else False,
        "alert_once": True,
    }
    with tap.record(**lens):
        accumulator(jnp.float32(0.0))
    assert capsys.readouterr().err == "[tap] FAIL scan[0] 7/10: carry=6.22 exceeded 5.0\n"
    with tap.record(alert=lambda e: e.lane == (3,) and e.step == 1):
        jax.vmap(accumulator)(jnp.zeros(5, jnp.float32))
    assert "[tap] FAIL scan[0] 1/10 lane (3,): alert\n" in capsys.readouterr().err
    with tap.record(alert=lambda e: e.step == 1):
        lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
    assert "[tap] FAIL while[0] 1/?: alert\n" in capsys.readouterr().err
