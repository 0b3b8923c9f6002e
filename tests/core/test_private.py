"""The places where jaxtap leans on names inside JAX: these tests fail when those move."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend import core as jcore
from jax.interpreters import mlir
from jax.interpreters import partial_eval as pe

import jaxtap as tap
from jaxtap import _dispatch, _jit_frames, _provenance, _pruned
from jaxtap._jaxprs import scan_p, while_p


def test_the_present_lowering_rules_are_found() -> None:
    for primitive in (scan_p, while_p):
        assert callable(mlir._lowerings[primitive].rule)
        assert "realis" in mlir._lowerings[primitive].rule.__qualname__


class State(NamedTuple):
    position: Any
    fixed: Any
    step: Any


def test_leaves_are_whole_and_in_order() -> None:
    """Unchanged leaves and forwarded outputs are taken out before a loop is bound; a user still counts them."""

    def body(s: State, x: Any) -> Any:
        return State(s.position * s.fixed + x, s.fixed, s.step + 1), (x, s.position, {"k": s.fixed})

    start = State(jnp.ones(3), jnp.full(3, 0.5), jnp.int32(0))
    scan = tap.loops(lambda: lax.scan(body, start, jnp.arange(4.0)))[0]
    assert [leaf.name for leaf in scan.carry] == ["s.position", "s.fixed", "s.step"]
    assert [leaf.name for leaf in scan.outputs] == ["ys[0]", "ys[1]", "ys[2]['k']"]
    loop = tap.loops(lambda: lax.while_loop(lambda s: s.step < 3, lambda s: body(s, 1.0)[0], start))[0]
    assert [leaf.name for leaf in loop.carry] == ["s.position", "s.fixed", "s.step"]


@pytest.mark.parametrize(
    ("transform", "purpose"),
    [
        (lambda f: jax.jit(f)(1.0), "jit"),
        (lambda f: lax.scan(lambda c, _: (f(c), None), 1.0, length=2)[0], "scan"),
        (lambda f: lax.while_loop(lambda c: c < 3.0, f, 1.0), "while_body"),
        (lambda f: lax.cond(True, f, lambda x: x, 1.0), "cond"),
    ],
)
def test_what_is_being_traced_for_is_found(transform: Any, purpose: str) -> None:
    """It is read from local variables of JAX's tracing function."""
    seen: list[str] = []

    def watched(x: Any) -> Any:
        seen.extend(filter(None, map(_provenance._traced_for, _provenance.frames(0))))
        return x + 1.0

    jax.block_until_ready(transform(watched))
    assert seen and seen[0].startswith(purpose)
    assert seen[0].startswith(_provenance._ENTERED)


def test_frames_are_read_only_where_they_are_known() -> None:
    assert _pruned.pruned(0) is None


def test_a_frame_that_has_changed_is_no_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(_pruned, "_MODULE", "elsewhere")
    with tap.record() as rec:
        lax.scan(lambda s, x: ((s[0] + x, s[1]), None), (0.0, 1.0), jnp.arange(3.0))
    assert len(rec.events) == 3 and len(rec.events[0].value) == 1
    assert jax.numpy is jnp


def test_the_frames_of_jit_are_found() -> None:
    """Which function is compiled, and with which arguments, is read from local variables of JAX's jit."""
    calls: list[Any] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if kwargs.get("fun_name") in ("watched", "jit(watched)"):
            calls.append(_jit_frames.traced_call() if "trace" in event else _jit_frames.compiled_call())

    def watched(x: Any, n: int, *, flag: bool) -> Any:
        return x * n

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(watched, static_argnums=1, static_argnames="flag", donate_argnames="x")(jnp.ones(3), 2, flag=True)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    traced, lowered, compiled = calls
    assert traced.jaxpr.eqns and lowered.jaxpr is None and lowered == compiled
    for call in (traced, compiled):
        assert call.function is watched and call.args[1:] == (2,) and call.kwargs == {"flag": True}
        assert call.static_argnums == (1,) and "flag" in call.static_argnames
        assert call.options["donate_argnames"] == "('x',)" and "None" not in call.options["inline"]
        assert call.source.startswith("watched at ") and "test_private.py" in call.source


def test_frames_of_jit_that_have_changed_are_no_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(_jit_frames, "_MODULE", "elsewhere")
    with tap.compiles() as log:
        jax.jit(lambda x: x + 1)(jnp.ones(3))
    row = log.of("<lambda>")[0]
    assert row.compile_seconds is not None and not row.arguments and not row.source


def test_that_a_program_is_about_to_be_lowered_is_found(monkeypatch: Any) -> None:
    """It is read from the names of functions on the stack."""
    monkeypatch.setattr(_dispatch, "_is_alone", lambda: True)
    primitive, found = jcore.Primitive("asking"), list[bool]()
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, lambda _, x: [x])

    def rule(used: Any, *rest: Any) -> Any:
        found.append(_dispatch.is_last(2))
        return [True], rest[-1]

    pe.dce_rules[primitive] = rule
    jax.make_jaxpr(lambda x: pe.dce_jaxpr(jax.make_jaxpr(primitive.bind)(x).jaxpr, [True]) and x)(1.0)
    assert found == [False]
    jax.jit(lambda x: jax.jit(primitive.bind)(x) + 1.0).lower(1.0)
    assert found == [False, True]
