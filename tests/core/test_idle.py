"""A marked value that a program does not use changes nothing of it, whatever leads to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxtap as tap
from jaxtap._isolate import readings
from jaxtap.testing import assert_identical

N = 16
X = jnp.asarray(np.random.default_rng(0).standard_normal((N, N)), jnp.float32)
KERNEL = jnp.asarray(np.random.default_rng(1).standard_normal((1, 1, 3, 3)), jnp.float32)


def convolved(x: Any) -> Any:
    return lax.conv_general_dilated(x[None, None], KERNEL, (1, 1), "SAME")[0, 0]


def count_up(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: c * 0.5 + x, x)


# From an intermediate value to one that no result needs, and what of it XLA would keep beside the program.
UNUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "product": (lambda x: x @ X, "dot"),
    "products": (lambda x: jnp.var(X @ (x.T @ X) / N, 0), "dot"),
    "convolution": (lambda x: convolved(x) * 0.1 + x, "convolution"),
    "sort": (lambda x: jnp.sort(x, 0) - x, "sort"),
    "in a function": (jax.jit(lambda x: (x @ X).sum(0)), "dot"),
    "loop": (count_up, "while"),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(N)), "cholesky|potrf"),
    "fft": (lambda x: jnp.fft.fft(x).real, "fft"),
}


def used(x: Any) -> tuple[Any, Any, Any]:
    """What a program does with an intermediate value."""
    inner = jnp.exp(-(jnp.tanh(x) ** 2))
    return inner, (inner * jnp.float32(0.3) + x).sum(0), jnp.sum(inner + jnp.sqrt(x[0] ** 2 + 1)[None, :])


def bare(x: Any) -> Any:
    return used(x)[1:]


def outside(text: str, names: str) -> int:
    """How many operations of a compiled program, not of a branch of it, are called so."""
    entry = text[text.index("\nENTRY ") :]
    return len(re.findall(rf"= \S+ (?:{names})\(|calls=%\S*(?:{names})|custom_call_target=\"\S*(?:{names})", entry))


@pytest.mark.parametrize("name", UNUSED)
def test_it_is_done_where_it_is_read(name: str) -> None:
    unused, operation = UNUSED[name]

    def program(x: Any) -> Any:
        inner, *results = used(x)
        tap.mark("unused", unused(inner))
        return tuple(results)

    expected = jax.jit(bare)(X)
    with tap.record() as rec:
        compiled = jax.jit(program).lower(X).compile()
        assert_identical(compiled(X), expected)
    (event,) = [event for event in rec.events if event.kind == "mark"]
    np.testing.assert_allclose(event.value, jax.jit(lambda x: unused(used(x)[0]))(X), rtol=1e-4, atol=1e-4)
    text = compiled.as_text()
    assert text is not None and outside(text, operation) == 0
    assert re.search(operation, text)


def test_what_the_program_needs_is_done_once() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        y = convolved(x)
        tap.mark("y", y)
        return y @ x

    with tap.record() as rec:
        text = program.lower(X).compile().as_text()
        program(X)
    assert text is not None and len(re.findall(r" convolution\(", text)) == 1 and len(rec.events) == 1


def test_what_does_more_than_make_a_result_is_left() -> None:
    seen: list[int] = []

    @jax.jit
    def program(x: Any) -> Any:
        y = jax.pure_callback(
            lambda v: (seen.append(1), np.asarray(v) * 2)[1], jax.ShapeDtypeStruct(x.shape, x.dtype), x
        )
        tap.mark("y", y @ x)
        return x + 1.0

    with tap.record() as rec:
        program(X)
    assert len(rec.events) == 1 and len(seen) == 1
    np.testing.assert_allclose(rec.events[0].value, 2 * X @ X, rtol=1e-4)


def test_several_marks_one_of_which_reads_what_leads_to_another() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        inner, *results = used(x)
        first = inner @ X
        tap.mark("first", first)
        tap.mark("second", first @ inner)
        return tuple(results)

    with tap.record() as rec:
        assert_identical(program(X), jax.jit(bare)(X))
        text = program.lower(X).compile().as_text()
    assert len(rec.events) == 2 and text is not None and outside(text, "dot") == 0


def over_devices(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    mesh = Mesh(np.asarray(jax.devices()), ("rows",))
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))


WRAPPED: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "jit": jax.jit,
    "shard_map": over_devices,
    "shard_map in vmap": lambda f: jax.jit(jax.vmap(over_devices(f))),
    "remat": lambda f: jax.jit(jax.checkpoint(f)),
    "a branch": lambda f: jax.jit(lambda x: lax.cond(jnp.max(x) > 0, f, lambda x: used(x)[1:], x)),
    "a function": lambda f: jax.jit(lambda x: jax.tree.map(lambda v: v * 1.0, jax.jit(f)(x))),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wherever_the_mark_stands(name: str) -> None:
    """JAX lowers parts of a program apart, and moves them into it."""

    def program(x: Any) -> Any:
        inner, *results = used(x)
        tap.mark("unused", inner @ X)
        return tuple(results)

    x = jnp.stack([X, X * 0.5]) if "vmap" in name else X
    expected = WRAPPED[name](bare)(x)
    with tap.record() as rec:
        lowered = WRAPPED[name](program).lower(x)
        assert_identical(lowered.compile()(x), expected)
        assert_identical(WRAPPED[name](program)(x), expected)
    assert "jaxtap_reading" not in lowered.as_text()
    assert {event.kind for event in rec.events} == {"mark"}
    devices = len(jax.devices()) if "shard_map" in name else 1
    assert len(rec.events) == 2 * devices * (2 if "vmap" in name else 1)


def test_a_lowering_that_fails_leaves_nothing() -> None:
    def fails(x: Any) -> Any:
        tap.mark("x", x @ x)
        return jax.ffi.ffi_call("no such target", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, odd=object())

    with tap.record() as rec:
        for _ in range(3):
            with pytest.raises(Exception, match="object"):
                jax.jit(fails)(X)
        jax.jit(lambda x: (tap.mark("y", x @ x), x)[1])(X)
    assert [event.path for event in rec.events] == ["y[0]"]
    assert not readings._listens


def test_no_one_listens_when_the_lens_is_gone() -> None:
    with tap.record():
        jax.jit(lambda x: (tap.mark("x", x @ x), x)[1])(X)
        assert readings._listens
    assert not readings._listens


def test_long_programs() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        for _ in range(1500):
            x = jnp.sin(x)
        tap.mark("x", x @ x)
        return x

    with tap.record() as rec:
        program.lower(X)
    assert rec.report().failures == {}
