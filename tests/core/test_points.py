"""Taps on single equations: what they are called, what they send, what they print."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap
from jaxtap._router import settle

X = jnp.array([0.3, -0.2, 0.7, 1.1])


def step(c: Any, x: Any) -> Any:
    return jnp.sin(c) * 0.9 + x, c * 2.0


def program(x: Any) -> Any:
    y, _ = lax.scan(step, x, jnp.arange(5.0))
    return jnp.sin(y) * 3.0


def seen(run: Any, *args: Any, **lens: Any) -> list[tap.TapEvent]:
    with tap.record(ops=(), **lens) as rec:
        jax.block_until_ready(run(*args))
    return list(rec.events)


def short(events: list[tap.TapEvent]) -> list[tuple[Any, ...]]:
    return [(e.path, e.step, e.total, e.kind, e.lane) for e in events]


IN_AND_OUT = [*(("scan[0]/sin[0]", i, 5, "primitive", ()) for i in range(5)), ("sin[0]", -1, None, "primitive", ())]


@pytest.mark.parametrize("run", [program, jax.jit(program), jax.jit(lambda x: jax.jit(program)(x))])
def test_in_and_out_of_loops(run: Any) -> None:
    for _ in range(2):
        events = seen(run, X, taps=[tap.on("sin", output=0)])
        # Across loops, events come as XLA's threads have it.
        events.sort(key=lambda event: event.path)
        assert short(events) == IN_AND_OUT
        assert [e.source.split(":")[0] for e in events] == ["test_points.py"] * 6
    values = [X]
    for i in range(4):
        values.append(jnp.sin(values[-1]) * 0.9 + i)
    for event, c in zip(events, values, strict=False):
        np.testing.assert_allclose(event.value, jnp.sin(c), rtol=1e-5)


def test_wrapping_form_is_the_same() -> None:
    events: list[tap.TapEvent] = []
    run = tap.verbose(program, on_step=events.append, ops=(), taps=[tap.on("sin")])
    run(X)
    assert short(events) == IN_AND_OUT
    assert all(isinstance(e.value, tuple) and len(e.value) == 1 for e in events)


def test_several_names_a_glob_and_where() -> None:
    paths = {e.path for e in seen(program, X, taps=[tap.on(["sin", "add"])])}
    assert paths == {"scan[0]/sin[0]", "scan[0]/add[0]", "sin[0]"}
    assert {e.path for e in seen(program, X, taps=[tap.on("s*n", where=lambda p: "/" in p)])} == {"scan[0]/sin[0]"}
    loops = {e.path for e in seen(program, X, taps=[tap.on("mul", where=lambda p: p.startswith("scan"))])}
    assert loops == {"scan[0]/mul[0]", "scan[0]/mul[1]"}


def test_what_is_sent() -> None:
    both = seen(program, X, taps=[tap.on("sin", select=lambda outs: jnp.sum(outs[0])), tap.on("sin", output=0)])
    assert {np.shape(e.value) for e in both} == {(), (4,)}
    pathed = seen(program, X, taps=[tap.on("sin", select=lambda outs, path: {path: outs[0].max()})])
    assert {key for e in pathed for key in e.value} == {"scan[0]/sin[0]", "sin[0]"}
    with pytest.raises(tap.SelectError, match=re.escape("select failed on scan[0]/sin[0] (test_points.py")):
        seen(program, X, taps=[tap.on("sin", select=lambda outs: outs[3])])
    with pytest.raises(IndexError, match=r"output=2 is out of range: .*sin\[0\].* has 1 outputs"):
        seen(program, X, taps=[tap.on("sin", output=2)])


def test_several_outputs() -> None:
    def run(a: Any) -> Any:
        return lax.scan(lambda c, _: (c * 0.5, jnp.linalg.eigh(c)[0]), a, None, length=2)

    a = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    (event, _) = seen(run, a, taps=[tap.on("eigh")])
    vectors, values = event.value
    assert vectors.shape == (3, 3) and values.tolist() == [1.0, 2.0, 3.0]
    assert event.path.endswith("eigh[0]") and event.path.startswith("scan[0]/")
    assert seen(run, a, taps=[tap.on("eigh", output=1)])[1].value.tolist() == [0.5, 1.0, 1.5]


def test_sampling_gates_what_is_in_loops() -> None:
    events = seen(program, X, taps=[tap.on("sin")], sample_every=2)
    assert [e.step for e in events] == [0, 2, 4, -1]


def test_lines_are_those_of_jax_tap(capfd: Any) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, x: (c * 0.5 + x, None), x, jnp.arange(2.0))[0]

    tap.verbose(run, taps=[tap.print("mul")])(1.7)
    tap.verbose(run, taps=[tap.print("mul", output=0, once=True)])(jnp.arange(20.0))
    tap.verbose(run, taps=[tap.on("mul", select=lambda o: o[0] < 1.0, alert=lambda small: small, label="small")])(1.7)
    tap.verbose(run, taps=[tap.watch_nan("add")])(jnp.inf)
    jax.vmap(tap.verbose(run, taps=[tap.watch_nan("add", once=True)]))(jnp.array([1.0, jnp.nan]))
    settle()
    assert capfd.readouterr().err.splitlines() == [
        "[tap] scan[0]/mul[0] 0/2: array([0.85], dtype=float32)",
        "[tap] scan[0]/mul[0] 1/2: array([0.425], dtype=float32)",
        "[tap] scan[0]/mul[0] 0/2: array([0. , 0.5, ..., 9. , 9.5], shape=(20,), dtype=float32)",
        "[tap] FAIL scan[0]/mul[0] 0/2: small",
        "[tap] FAIL scan[0]/mul[0] 1/2: small",
        "[tap] FAIL scan[0]/add[0] 0/2: NaN/Inf",
        "[tap] FAIL scan[0]/add[0] 1/2: NaN/Inf",
        "[tap] FAIL scan[0]/add[0] 0/2 lane (1,): NaN/Inf",
    ]


def test_a_product_that_xla_turns_is_turned_under_a_mark_too() -> None:
    """A gradient is the transpose of a product, which XLA writes as a product of transposes if it is used but once."""
    x = jax.random.normal(jax.random.key(0), (32, 8))
    w = {"a": jax.random.normal(jax.random.key(1), (8, 16)), "b": jax.random.normal(jax.random.key(2), (16,))}

    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - 1.0) ** 2)

    @jax.jit
    def step(w: Any, m: Any) -> Any:
        g = tap.mark("gradient", jax.grad(loss)(w))
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(g)))
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * (g / norm), m, g)
        return jax.tree.map(lambda w, m: w - 0.01 * m, w, m), m

    def run() -> Any:
        state = (w, jax.tree.map(jnp.zeros_like, w))
        for _ in range(6):
            state = step(*state)
        return state

    bare = run()
    with tap.record(marks={"gradient": tap.norm}) as rec:
        marked = run()
    jax.tree.map(np.testing.assert_array_equal, marked, bare)
    assert len(rec.events) == 6


def test_equations_of_transforms_are_not_the_programs() -> None:
    """The derivative of a cosine is a sine that no one has written."""
    run = jax.jit(jax.grad(lambda x: jnp.cos(x).sum() + jnp.exp(x).sum()))
    with pytest.warns(tap.JaxtapWarning, match="no equation was seen for the tap on 'sin'"):
        assert seen(run, X, taps=[tap.on("sin")]) == []
    assert [e.path for e in seen(run, X, taps=[tap.on(["cos", "exp"])])] == ["cos[0]", "exp[0]"]


def test_lanes() -> None:
    def run(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3.0, lambda c: jnp.sin(c) + c + 0.5, x)

    events = seen(jax.jit(jax.vmap(run)), jnp.array([0.1, 2.9, 1.5]), taps=[tap.on("sin", output=0)])
    steps = {lane: [e.step for e in events if e.lane == (lane,)] for lane in range(3)}
    for lane, start in enumerate([0.1, 2.9, 1.5]):
        alone = seen(run, start, taps=[tap.on("sin", output=0)])
        assert steps[lane] == [e.step for e in alone]


def test_reducers_and_bodies_that_are_not_entered() -> None:
    """A body that must not have an effect gets none, whatever was traced before."""
    with pytest.warns(tap.JaxtapWarning, match="no equation was seen"):
        seen(lambda: lax.reduce(X, 0.0, lambda a, b: jnp.maximum(jnp.sin(a), b), (0,)), taps=[tap.on("sin")])
    events = seen(lambda: jnp.add(1.0, 2.0) + lax.reduce(X, 0.0, jnp.add, (0,)), taps=[tap.on("add")])
    assert {e.path for e in events} == {"add[0]"}


def test_nothing_is_left() -> None:
    bind = jax.extend.core.Primitive.bind
    with tap.record(taps=[tap.on("sin")]):
        assert jax.extend.core.Primitive.bind is not bind
    assert jax.extend.core.Primitive.bind is bind
    g = jax.jit(program)
    seen(g, X, taps=[tap.on("sin")])
    assert not jax.make_jaxpr(g)(X).effects
    text = g.lower(X).as_text()
    assert "callback" not in text


def test_a_tap_that_nothing_fits_says_so() -> None:
    with pytest.warns(tap.JaxtapWarning, match="no equation was seen for the tap on 'cholesky'"):
        seen(program, X, taps=[tap.on("cholesky")])
    # A program that was compiled through the lens before is known to hold the equation, silent though it be.
    g = jax.jit(program)
    for _ in range(2):
        assert seen(g, X, taps=[tap.watch_nan("sin")]) == []


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: tap.on(5), TypeError, "prim must be the name of a primitive"),
        (lambda: tap.on([]), TypeError, "prim must be the name of a primitive"),
        (lambda: tap.on("sin", select="x"), TypeError, "select must be a function or None"),
        (lambda: tap.on("sin", output="first"), TypeError, "output must be the index"),
        (lambda: tap.record(taps=["sin"]), TypeError, r"taps must hold .* taps=\[jaxtap.on\('sin'\)\]"),
        (lambda: tap.record(marks=5), TypeError, "marks must be a name or glob"),
    ],
)
def test_wrong_arguments(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_primitives() -> None:
    found = tap.primitives(program, X)
    assert found == {"iota": 1, "scan": 1, "sin": 2, "mul": 3, "add": 1} and isinstance(found, dict)
    assert [e.path for e in found.of("sin")] == ["scan[0]/sin[0]", "sin[0]"]
    (leaf,) = found.of("add")[0].outputs
    assert leaf.shape == (4,) and "test_points.py" in found.of("add")[0].source
    assert repr(found.of("add")[0]).startswith("scan[0]/add[0]  test_points.py:")


# --- Marks ---------------------------------------------------------------------------------------------------


def residuals(x: Any) -> Any:
    def newton(x: Any, _: Any) -> Any:
        r = tap.mark("residual", {"r": x * x - 2.0, "x": x})
        return x - r["r"] / (2.0 * x), None

    tap.mark("start", x)
    return lax.scan(newton, x, None, length=3)[0]


def marks(run: Any, x: Any, **lens: Any) -> list[tap.TapEvent]:
    with tap.record(**lens) as rec:
        run(x)
    return [event for event in rec.events if event.kind == "mark"]


@pytest.mark.parametrize("run", [residuals, jax.jit(residuals)])
def test_marks(run: Any) -> None:
    found = sorted(marks(run, 1.0), key=lambda e: e.path)
    assert [(e.path, e.step, e.total) for e in found] == [
        *(("scan[0]/residual[0]", i, 3) for i in range(3)),
        ("start[0]", -1, None),
    ]
    assert found[0].value == {"r": -1.0, "x": 1.0} and found[0].source.endswith("(newton)")
    rec = tap.FlightRecorder()
    for event in found:
        rec(event)
    assert rec.df(kind="mark", path="start[0]")["path"].tolist() == ["start[0]"]


def test_marks_choose() -> None:
    assert {e.path for e in marks(residuals, 1.0, marks="start")} == {"start[0]"}
    assert marks(residuals, 1.0, marks=()) == []
    assert {e.path for e in marks(residuals, 1.0, marks=["res*", "x"])} == {"scan[0]/residual[0]"}
    assert [float(e.value) for e in marks(residuals, 1.0, marks={"residual": "r"})] == pytest.approx(
        [-1.0, 0.25, 0.00694], abs=1e-4
    )
    assert {e.path for e in marks(residuals, 1.0, where=lambda path: "residual" in path)} == {"scan[0]/residual[0]"}
    lanes = marks(jax.vmap(residuals), jnp.array([1.0, 2.0]), marks={"start": None})
    assert [(e.lane, float(e.value)) for e in lanes] == [((0,), 1.0), ((1,), 2.0)]


def test_a_mark_without_a_lens_is_nothing() -> None:
    def bare(x: Any) -> Any:
        return x * 2.0 + 1.0

    def marked(x: Any) -> Any:
        return tap.mark("twice", x * 2.0) + 1.0

    assert str(jax.make_jaxpr(bare)(1.0)) == str(jax.make_jaxpr(marked)(1.0))
    value = object()
    assert tap.mark("x", value) is value
    for name in ("", "a/b", "a[0]", 5):
        with pytest.raises(ValueError, match="the name of a mark must be"):
            tap.mark(name, 1.0)


def test_a_mark_without_jit() -> None:
    with jax.disable_jit(), tap.record() as rec:
        tap.mark("seen", jnp.arange(3.0) * 2.0)
    assert [(e.path, e.value.tolist()) for e in rec.events] == [("seen[0]", [0.0, 2.0, 4.0])]
