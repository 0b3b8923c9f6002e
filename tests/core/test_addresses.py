"""Addresses: the same in every way to run a program, in every process and on every version of Python and JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from core.addresses import GOLDEN, PROGRAMS, V, seen
from jax import lax
from jax.scipy.optimize import minimize

import jaxtap as tap

LANES = jnp.stack([V, V + 0.01])
# JAX cannot differentiate a while in reverse, nor Poisson counts; the loops of a custom rule are its own.
NOT_SMOOTH = (
    "custom_jvp",
    "two loops",
    "clip between",
    "solve",
    "poisson",
    "searchsorted",
    "expm",
    "jit in jit",
    "switch",
    "cond",
)
WITH_LOOPS_OF_JAX = ("poisson", "expm", "searchsorted", "gamma", "solve")


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    """The same eagerly, under jit, vmap and grad, again, and while JAX's own loops are shown."""
    run = PROGRAMS[name]
    assert seen(run, V) == GOLDEN[name]
    assert seen(jax.jit(run), V) == seen(jax.jit(run), V) == GOLDEN[name]
    assert seen(jax.vmap(run), LANES) == GOLDEN[name]
    if name not in NOT_SMOOTH:
        assert seen(jax.grad(lambda v: run(v).sum()), V) == GOLDEN[name]
    if name in WITH_LOOPS_OF_JAX:
        assert set(GOLDEN[name]) <= set(seen(jax.jit(run), V, internals=True))


def test_the_same_in_another_process() -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-m", "core.addresses"]
    found = subprocess.run(command, cwd=here.parent, capture_output=True, text=True, check=True, timeout=200)
    assert json.loads(found.stdout) == GOLDEN


# --- Loops of JAX's own --------------------------------------------------------------------------------------


def with_internals(v: Any) -> Any:
    """A draw whose rejection loop is JAX's, then a loop of one's own; in a scan, too."""

    def body(c: Any, _: Any) -> Any:
        c = c + jax.random.poisson(jax.random.key(1), 2.0).astype(c.dtype)
        return lax.fori_loop(0, 2, lambda i, a: a * 0.5, c), None

    v = v + jax.random.poisson(jax.random.key(0), 2.0).astype(v.dtype)
    return lax.scan(body, v, None, length=2)[0]


@pytest.mark.parametrize("jit", [False, True])
def test_loops_of_jax_are_hidden(jit: bool) -> None:
    run = jax.jit(with_internals) if jit else with_internals
    shown = seen(run, V, internals=True)
    hidden = seen(run, V)
    assert hidden == [path for path in shown if path in hidden] and len(shown) > len(hidden) == 2
    with tap.record() as rec:
        run(V)
    internal = [loop for loop in rec.report().loops if loop.internal]
    assert sorted(loop.path for loop in internal) == sorted(set(shown) - set(hidden))
    assert not any(loop.selected for loop in internal) and "filtered out, of JAX's own" in repr(rec.report())
    assert {loop.path for loop in tap.loops(run, V) if loop.internal} == set(shown) - set(hidden)


def test_a_program_of_only_such_loops_says_so() -> None:
    with (
        pytest.warns(tap.JaxtapWarning, match=r"JAX's own .*internals=True"),
        tap.record(),
    ):
        jax.random.poisson(jax.random.key(0), 2.0)


def test_a_loop_in_a_function_that_jax_calls_is_the_users() -> None:
    def double(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, a: a * 2.0, x)

    def everywhere(v: Any) -> Any:
        jnp.vectorize(double)(v)
        lax.map(double, v)
        return lax.associative_scan(lambda a, b: double(a) + b, v)

    with tap.record() as rec:
        everywhere(V)
    assert rec.report().loops and not any(loop.internal for loop in rec.report().loops)


def test_a_tripwire_leaves_loops_of_jax_alone() -> None:
    """A line search may well try where its function is not defined."""

    def minimum(v: Any) -> Any:
        return minimize(lambda x: jnp.sum(jnp.log(x)), v, method="BFGS").x

    for internals in (False, True):
        with tap.record(taps=[tap.watch_nan()], internals=internals) as rec:
            minimum(jnp.ones(2))
        assert bool(rec.events) is internals


# --- where= --------------------------------------------------------------------------------------------------


def nested(v: Any) -> Any:
    def one_step(c: Any, x: Any) -> Any:
        c = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, c))[1]

        def inner_step(i: Any, a: Any) -> Any:
            return jnp.cos(a) + x

        return lax.fori_loop(0, 2, inner_step, c), None

    return lax.scan(one_step, v, jnp.arange(2.0))[0]


OUTER, FIRST, SECOND = "scan[0]", "scan[0]/while[0]", "scan[0]/scan[1]"


@pytest.mark.parametrize(
    ("where", "paths"),
    [
        ("scan[0]", [OUTER]),
        ("scan[*]", [OUTER]),
        ("scan[0]/*", [SECOND, FIRST]),
        ("scan[0]/while[*]", [FIRST]),
        ("**/scan[?]", [SECOND]),
        ("scan[0]**", [OUTER, SECOND, FIRST]),
        ("one_step", [OUTER]),
        ("inner_step", [SECOND]),
        ("*_step", [OUTER, SECOND]),
        ("<lambda>", [FIRST]),
        (lambda path: path.endswith("while[0]"), [FIRST]),
    ],
)
def test_where(where: Any, paths: list[str]) -> None:
    assert seen(nested, V, where=where) == paths


@pytest.mark.parametrize(
    ("where", "paths"),
    [("inner_step", ["scan[0]/scan[1]/cos[0]"]), ("scan[0]/while[0]/*", ["scan[0]/while[0]/sin[0]"]), ("one_step", [])],
)
def test_where_of_a_tap(where: str, paths: list[str]) -> None:
    found = tap.on(["sin", "cos"], where=where)
    with tap.record(ops=(), taps=[found]) as rec:
        if paths:
            nested(V)
        else:
            with pytest.warns(tap.JaxtapWarning, match="no equation was seen"), tap.record(ops=(), taps=[found]):
                nested(V)
            nested(V)
            rec.clear()
            return
    assert sorted({event.path for event in rec.events}) == paths


def test_a_where_that_fits_nothing_says_what_there_is() -> None:
    says = (
        r"3 loops were seen and none sent anything: scan\[0\] \(test_addresses.py:\d+ \(one_step\)\).*where='two_step'"
    )
    with pytest.warns(tap.JaxtapWarning, match=says), tap.record(where="two_step"):
        nested(V)


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [(5, TypeError, "where must be a glob over addresses"), ("", ValueError, "where must not be empty")],
)
def test_wrong_where(where: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        tap.record(where=where)
    with pytest.raises(error, match=says):
        tap.on("sin", where=where)
