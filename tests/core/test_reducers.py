"""Ready selectors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap

LEAVES = (
    jnp.array([[3.0, -4.0], [jnp.nan, 0.0]]),
    jnp.array([1, 2]),
    jnp.array([True]),
    jnp.array([jnp.inf, 2.0], jnp.bfloat16),
    jnp.array([3.0 + 4.0j], jnp.complex64),
    jax.random.key(0),
    jnp.zeros((0, 3)),
)
FINITE = (jnp.array([3.0, -4.0]), jnp.array([12.0], jnp.bfloat16), jnp.array(7), jnp.zeros((0,)))


def test_what_they_are() -> None:
    assert int(tap.health(LEAVES)) == 2 and tap.health(LEAVES).dtype == jnp.int32
    assert float(tap.norm(FINITE)) == pytest.approx(13.0)
    found = {name: float(value) for name, value in tap.stats(FINITE).items()}
    assert found == pytest.approx({"min": -4.0, "max": 12.0, "mean": 11 / 3, "rms": 13 / 3**0.5, "non_finite": 0.0})
    assert np.isnan(tap.norm(LEAVES)) and np.isnan(tap.stats(LEAVES)["mean"])
    assert float(tap.norm((LEAVES[4],))) == pytest.approx(5.0)


def test_norms_neither_overflow_nor_vanish() -> None:
    assert float(tap.norm((jnp.array([3e30, 4e30]),))) == pytest.approx(5e30)
    assert float(tap.norm((jnp.array([3e-30, 4e-30]),))) == pytest.approx(5e-30)
    assert float(tap.norm((jnp.zeros(3),))) == 0.0 and float(tap.norm((jnp.array([jnp.inf]),))) == np.inf
    with jax.enable_x64(True):
        assert tap.norm((jnp.ones(2, jnp.float64),)).dtype == jnp.float64


def test_nothing_to_reduce() -> None:
    for leaves in ((), (jnp.arange(3),), (jnp.zeros(0),)):
        assert float(tap.norm(leaves)) == 0.0 and int(tap.health(leaves)) == 0
        assert float(tap.stats(leaves)["mean"]) == 0.0
        assert tap.histogram(3)(leaves)["counts"].tolist() == [0, 0, 0]


def test_histograms() -> None:
    x = jnp.array([0.0, 0.1, 0.5, 0.99, 1.0, -1.0, 2.0, jnp.nan, jnp.inf])
    fixed = tap.histogram(2, 0.0, 1.0)((x,))
    assert fixed["counts"].tolist() == [2, 3] and fixed["edges"].tolist() == [0.0, 0.5, 1.0]
    free = tap.histogram(4)((x,))
    counts, edges = np.histogram(np.asarray(x)[np.isfinite(x)], bins=4)
    assert free["counts"].tolist() == counts.tolist()
    np.testing.assert_allclose(free["edges"], edges, rtol=1e-6)
    same = tap.histogram(2)((jnp.full(3, 5.0),))
    assert same["counts"].sum() == 3
    with pytest.raises(ValueError, match="bins must be an integer of at least 1"):
        tap.histogram(0)
    with pytest.raises(ValueError, match="low must be less than high"):
        tap.histogram(2, 1.0, 1.0)


def program(x: Any) -> Any:
    def body(s: Any, _: Any) -> Any:
        return {"p": s["p"] * 2.0, "q": s["q"] + 1.0}, s["p"]

    s, _ = lax.scan(body, {"p": x, "q": 0.0}, None, length=3)
    return lax.fori_loop(0, 2, lambda i, c: c + 1.0, s["q"])


def test_as_selectors_with_and_without_names() -> None:
    with tap.record(select=tap.norm("p")) as rec:
        program(jnp.array([3.0, 4.0]))
    assert [(e.path, float(e.value)) for e in rec.events] == [("scan[0]", 10.0), ("scan[0]", 20.0), ("scan[0]", 40.0)]
    with tap.record(select=tap.stats, select_ys=tap.health, taps=[tap.on("mul", select=tap.norm)]) as rec:
        jax.vmap(program)(jnp.array([[3.0, 4.0], [jnp.nan, 1.0]]))
    assert {e.lane for e in rec.events if e.path.startswith("scan[0]")} == {(0,), (1,)}
    assert [int(e.value) for e in rec.events if e.kind == "output" and e.lane == (1,)] == [1, 1, 1]
    with pytest.warns(tap.JaxtapWarning, match="no loop has a leaf named 'r'"), tap.record(select=tap.norm("r")):
        program(jnp.array([3.0, 4.0]))


def test_the_same_reducer_is_one_object() -> None:
    """So that a second lens finds what the first has compiled."""
    assert tap.norm("p") is tap.norm("p") and tap.histogram(8) is tap.histogram(8)
    assert tap.histogram(8)("p", "q") is tap.histogram(8)("p", "q")
    traces: list[int] = []

    @jax.jit
    def run(x: Any) -> Any:
        traces.append(1)
        return program(x)

    for _ in range(3):
        with tap.record(select=tap.norm("p")):
            run(jnp.array([3.0, 4.0]))
    assert len(traces) == 1
    assert repr(tap.norm("p", "q")) == "norm('p', 'q')"
