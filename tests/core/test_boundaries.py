"""Limits that docs/boundaries.md states and that no other test shows: each is as it is said to be."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap as tap


def counted(x: Any, steps: int = 3) -> Any:
    return lax.fori_loop(0, steps, lambda i, x: x + 1.0, x)


def test_a_program_compiled_ahead_of_time_is_out_of_sight() -> None:
    compiled = jax.jit(counted).lower(0.0).compile()
    with pytest.warns(tap.JaxtapWarning, match="ahead of time"), tap.record() as rec:
        compiled(0.0)
    assert len(rec.events) == 0


def test_one_compiled_ahead_of_time_within_a_lens_keeps_it() -> None:
    with tap.record(select="x") as rec:
        compiled = jax.jit(counted).lower(0.0).compile()
        compiled(0.0)
    assert [event.step for event in rec.events] == [0, 1, 2]
    compiled(0.0)
    jax.effects_barrier()
    assert len(rec.events) == 3


def test_functions_of_jax_that_are_jitted_are_one_place_outside_of_loops() -> None:
    """JAX traces `jnp.sin` once, and calls what it has traced from everywhere."""

    def program(x: Any) -> Any:
        y = jnp.sin(x)
        return jnp.sin(y)

    with tap.record(taps=[tap.on("sin")]) as rec:
        jax.jit(program)(1.0)
    assert [(event.path, event.call) for event in rec.events] == [("sin[0]", 0), ("sin[0]", 1)]


@pytest.mark.parametrize(
    "operation",
    [lambda: jax.random.gamma(jax.random.key(0), 2.0), lambda: jax.scipy.special.betainc(1.0, 2.0, 0.5)],
    ids=["gamma", "betainc"],
)
def test_a_loop_that_only_lowering_makes_is_none(operation: Any) -> None:
    def program(x: Any) -> Any:
        return lax.scan(lambda c, _: (c + operation(), None), x, length=1)[0]

    with tap.record(internals=True) as rec:
        program(0.0)
    assert [loop.path for loop in rec.report().loops] == ["scan[0]"]


def test_in_a_loop_each_equation_has_its_number() -> None:
    with tap.record(taps=[tap.on("sin")], ops=()) as rec:
        lax.scan(lambda c, _: (jnp.sin(jnp.sin(c)), None), 1.0, length=1)
    assert sorted(event.path for event in rec.events) == ["scan[0]/sin[0]", "scan[0]/sin[1]"]


@jax.custom_jvp
def smooth(x: Any) -> Any:
    return lax.fori_loop(0, 2, lambda i, x: x * 2.0, x)


@smooth.defjvp
def _rule(primals: Any, tangents: Any) -> Any:
    return smooth(primals[0]), lax.fori_loop(0, 2, lambda i, t: t * 2.0, tangents[0])


def test_loops_of_a_custom_derivative_have_addresses_of_their_own() -> None:
    def outer(x: Any) -> Any:
        return lax.scan(lambda c, _: (smooth(c), None), x, length=2)[0]

    assert [loop.path for loop in tap.loops(outer, 1.0)] == ["scan[0]", "scan[0]/custom_jvp[0]/scan[0]"]
    forward = [loop.path for loop in tap.loops(lambda x: jax.jvp(outer, (x,), (x,)), 1.0)]
    assert "scan[0]" in forward and any("/" not in path for path in forward if path != "scan[0]")


def test_tripped_holds_the_first_thousand(capsys: pytest.CaptureFixture[str]) -> None:
    always = tap.trip(lambda leaves: leaves["x"] >= 0.0, select="x", once=True)
    with pytest.raises(tap.Tripped) as error, tap.record(taps=[always], raise_on_exit=True) as rec:
        counted(0.0, 1200)
    assert len(error.value.events) == 1000 and len(rec.events) == 1200
    assert capsys.readouterr().err.count("FAIL") == 1


def test_a_wrapped_function_under_jit_does_not_wait() -> None:
    """What it returns is a tracer. The block form, and `jax.effects_barrier`, wait."""
    go, seen = threading.Event(), list[int]()

    def slow(event: tap.TapEvent) -> None:
        go.wait(10)
        seen.append(event.step)

    g = jax.jit(tap.verbose(counted, on_step=slow))
    begin = time.perf_counter()
    g(0.0)
    assert time.perf_counter() - begin < 5 and not seen
    go.set()
    with tap.record(select="x"):
        counted(0.0)
    assert seen == [0, 1, 2]


def test_equations_of_one_step_arrive_in_any_order() -> None:
    with tap.record(taps=[tap.on(["sin", "cos"])], select="c") as rec:
        lax.scan(lambda c, _: (jnp.sin(jnp.cos(c)), None), 1.0, length=3)
    by_step = [{event.path for event in rec.events if event.step == step} for step in range(3)]
    assert by_step == [{"scan[0]", "scan[0]/sin[0]", "scan[0]/cos[0]"}] * 3
    assert [event.step for event in rec.events if event.kind == "carry"] == [0, 1, 2]


def test_a_while_loop_has_no_outputs_and_no_gradient_pass() -> None:
    with tap.record(select="x", select_ys=lambda leaves: leaves) as rec:
        lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, 0.0)
    assert {event.kind for event in rec.events} == {"carry"}
    with pytest.raises(ValueError, match=r"[Rr]everse-mode differentiation does not work for lax.while_loop"):
        jax.grad(lambda x: lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, x))(0.0)


def test_on_cpu_a_program_that_sends_is_not_dispatched_ahead() -> None:
    @jax.jit
    def slow(x: Any) -> Any:
        return lax.fori_loop(0, 300, lambda _, y: jnp.tanh(y @ y), x)

    def is_over(x: Any) -> bool:
        y = slow(x)
        over = y.is_ready()
        y.block_until_ready()
        return over

    x = jnp.full((200, 200), 0.01)
    slow(x).block_until_ready()
    # The bare call may come back late on a busy machine.
    assert not all(is_over(x) for _ in range(5))
    with tap.record(select=lambda leaves: jnp.max(leaves[0])):
        assert all(is_over(x) for _ in range(2))
