"""The gradient pass: the cotangent of each loop's carry, step by step, and where it turns NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap

SIZES = (3, 1500)


def loss(x: Any) -> Any:
    def body(s: Any, t: Any) -> Any:
        p, q, n = s
        return (jnp.sin(p) * q + t, q * 1.1, n + 1), p.sum()

    (p, _, _), ys = lax.scan(body, (x, x * 0.5, 0), jnp.arange(4.0))
    return p.sum() + ys.sum()


def nested(x: Any) -> Any:
    def body(c: Any, t: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, d: jnp.sin(d) * 1.1, c) + t, None

    return lax.scan(body, x, jnp.arange(3.0))[0].sum()


def reverse(x: Any) -> Any:
    return lax.scan(lambda c, t: (jnp.sin(c) * t, None), x, jnp.arange(1.0, 5.0), reverse=True)[0].sum()


def seen(run: Any, *args: Any, **lens: Any) -> list[tap.TapEvent]:
    """The events of the gradient pass, of a program whose result the lens does not move."""
    bare = run(*args)
    with tap.record(**lens) as rec:
        result = run(*args)
    for one, other in zip(jax.tree.leaves(bare), jax.tree.leaves(result), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert rec.report().ok, rec.report()
    return [event for event in rec.events if event.kind == "backward"]


WAYS = {
    "grad": (jax.grad, "", ()),
    "jit(grad)": (lambda f: jax.jit(jax.grad(f)), "", ()),
    "value_and_grad": (jax.value_and_grad, "", ()),
    "vmap(grad)": (lambda f: jax.vmap(jax.grad(f)), "", (2,)),
    "grad(vmap)": (lambda f: jax.grad(lambda x: jax.vmap(f)(x).sum()), "", (2,)),
    "grad(checkpoint)": (lambda f: jax.grad(jax.checkpoint(f)), "remat[0]/", ()),
    "vjp": (lambda f: lambda x: jax.vjp(f, x)[1](1.0), "", ()),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_every_step_from_the_last_to_the_first(way: str, size: int) -> None:
    transform, head, lanes = WAYS[way]
    x = jnp.linspace(0.1, 0.4, size)
    x = jnp.stack([x, x * 1.2]) if lanes else x
    for program, steps in ((loss, 4), (reverse, 4)):
        events = seen(transform(program), x, select=lambda leaves: (), select_backward=lambda leaves: leaves[0].sum())
        want = [(f"{head}scan[0]", i, lane) for i in reversed(range(steps)) for lane in np.ndindex(lanes)]
        assert [(e.path, e.step, e.lane) for e in events] == want
        assert {e.call for e in events} == {0}


def test_values_are_the_cotangents() -> None:
    """Against the derivative of what is left of the program after each step."""
    x = jnp.array([0.3, 0.2])

    def rest(state: Any, first: int) -> Any:
        p, q = state
        total = 0.0
        for t in range(first, 4):
            total = total + p.sum()
            p, q = jnp.sin(p) * q + float(t), q * 1.1
        return total + p.sum()

    states, (p, q) = [], (x, x * 0.5)
    for t in range(4):
        p, q = jnp.sin(p) * q + float(t), q * 1.1
        states.append((p, q))
    events = seen(jax.grad(loss), x, backward=True)
    assert [e.step for e in events] == [3, 2, 1, 0]
    for event in events:
        want = jax.grad(rest)(states[event.step], event.step + 1)
        assert len(event.value) == 2
        for got, cotangent in zip(event.value, want, strict=True):
            np.testing.assert_allclose(got, cotangent, rtol=2e-5, atol=1e-6)


def test_names_choose() -> None:
    events = seen(jax.grad(loss), jnp.array([0.3, 0.2]), backward=True, select_backward="s[0]")
    assert [e.value.shape for e in events] == [(2,)] * 4
    both = seen(jax.grad(loss), jnp.array([0.3, 0.2]), select_backward=["s[0]", "s[1]"])
    assert list(both[0].value) == ["s[0]", "s[1]"]


@pytest.mark.parametrize("size", SIZES)
def test_nested_loops_keep_their_addresses(size: int) -> None:
    events = seen(jax.jit(jax.grad(nested)), jnp.linspace(0.1, 0.4, size), backward=True)
    outer = [(e.path, e.step, e.outer) for e in events if e.path == "scan[0]"]
    inner = [(e.path, e.step, e.outer) for e in events if e.path == "scan[0]/scan[0]"]
    assert outer == [("scan[0]", i, ()) for i in (2, 1, 0)]
    assert inner == [("scan[0]/scan[0]", i, (j,)) for j in (2, 1, 0) for i in (1, 0)]


def test_a_gradient_inside_a_loop() -> None:
    def descend(x: Any) -> Any:
        return lax.scan(lambda x, _: (x - 0.1 * jax.grad(reverse)(x), None), x, None, length=2)[0]

    events = seen(jax.jit(descend), jnp.array([0.1, 0.2]), backward=True)
    assert [(e.path, e.step, e.outer) for e in events] == [
        ("scan[0]/scan[0]", i, (j,)) for j in range(2) for i in reversed(range(4))
    ]


def test_of_second_derivatives_the_first_order_pass() -> None:
    for way in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        events = seen(way(reverse), jnp.array([0.1, 0.2]), backward=True)
        assert {e.step for e in events} == {0, 1, 2, 3}


def test_without_a_gradient_there_is_nothing() -> None:
    g = jax.jit(loss)
    x = jnp.array([0.1, 0.2])
    assert seen(g, x, backward=True) == []
    with tap.record(backward=True, where=lambda path: False, marks=()) as rec:
        text = g.lower(x).as_text()
    del rec
    assert "jaxtap" not in text


# --- Where a gradient turns NaN ------------------------------------------------------------------------------


def guarded(x: Any) -> Any:
    """Finite everywhere, but the derivative of the branch not taken is infinite at zero."""

    def body(c: Any, t: Any) -> Any:
        safe = jnp.where(c > 0.0, jnp.sqrt(c), 0.0)
        return jnp.where(t == 2.0, safe - safe, c + safe), None

    return lax.scan(body, x, jnp.arange(6.0))[0].sum()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrap", [jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.vmap(jax.grad(f))])
def test_watch_nan_backward(wrap: Any, size: int) -> None:
    x = jnp.full((2, size) if wrap not in (jax.grad,) and "vmap" in wrap.__code__.co_names else size, 4.0)
    assert np.isfinite(guarded(x[0] if x.ndim == 2 else x))
    events = seen(wrap(guarded), x, taps=[tap.watch_nan(backward=True)])
    # The carry is zero from step 3 on, and step 5 is the first of those in the gradient pass.
    assert {(e.path, e.step, e.kind) for e in events} == {("scan[0]", 5, "backward")}
    assert [e.lane for e in events] == ([(0,), (1,)] if x.ndim == 2 else [()])
    assert all(e.value == {"c": size} for e in events)


def test_watch_nan_backward_is_silent_on_a_healthy_gradient() -> None:
    assert seen(jax.jit(jax.grad(loss)), jnp.array([0.1, 0.2]), taps=[tap.watch_nan(backward=True)]) == []


def test_a_first_step_is_not_missed() -> None:
    def run(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            return jnp.where(t == 0.0, jnp.where(c > 0.0, jnp.sqrt(c), 1.0), c * 2.0), None

        return lax.scan(body, x, jnp.arange(3.0))[0].sum()

    (event,) = seen(jax.grad(run), jnp.zeros(2), taps=[tap.watch_nan(backward=True)])
    assert event.step == 0


# --- Marked values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_cotangents_of_marked_values(wrap: Any) -> None:
    def run(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            r = tap.mark("residual", {"r": c * t}, backward=True)["r"]
            return jnp.sin(r) + c, None

        return lax.scan(body, tap.mark("start", x * 2.0, backward=True), jnp.arange(1.0, 3.0))[0].sum()

    x = jnp.array([0.3, 0.2])
    events = seen(wrap(jax.grad(run)), x, select=lambda leaves: (), backward=True)
    found = [(e.path, e.step) for e in events if not e.path.endswith("scan[0]")]
    assert sorted(found) == [("scan[0]/residual[0]", 0), ("scan[0]/residual[0]", 1), ("start[0]", -1)]
    (start,) = [e.value for e in events if e.path == "start[0]"]
    np.testing.assert_allclose(np.asarray(start[0]) * 2.0, jax.grad(run)(x), rtol=1e-6)
    assert all("(body)" in e.source or "(run)" in e.source for e in events)


def test_a_mark_that_is_not_asked_for_its_cotangent() -> None:
    def run(x: Any) -> Any:
        return (tap.mark("twice", x * 2.0) ** 2).sum()

    assert seen(jax.grad(run), jnp.array([1.0, 2.0]), backward=True) == []


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="backward must be True or False"):
        tap.record(backward="yes")  # pyright: ignore[reportArgumentType]
