"""The newest steps, kept on the device until something happens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap

SIZES = (4, 2000)


def count_up(x: Any, unroll: int = 1) -> Any:
    return lax.scan(lambda x, _: (x + 1.0, x.sum()), x, None, length=50, unroll=unroll)


def turns_nan(x: Any) -> Any:
    """NaN from step 7 on."""

    def step(x: Any, _: Any) -> Any:
        return jnp.log(x) * jnp.where(x > 2.0, 2.0, 1.0), None

    return lax.scan(step, x, None, length=12)[0]


def largest(leaves: Any) -> Any:
    return leaves[-1].max()


def seen(run: Any, *args: Any, **lens: Any) -> tuple[list[tap.TapEvent], tap.Report]:
    bare = run(*args)
    with tap.record(select=largest, **lens) as rec:
        result = run(*args)
    for one, other in zip(jax.tree.leaves(bare), jax.tree.leaves(result), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    report = rec.report()
    assert report.ok and report.expected == report.delivered == len(rec.events), report
    return list(rec.events), report


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_loop_that_ends(size: int, wrap: Any) -> None:
    events, report = seen(wrap(count_up), jnp.ones(size), last=3)
    assert [(e.step, float(e.value)) for e in events] == [(47, 49.0), (48, 50.0), (49, 51.0)]
    assert report.sampled_out == 47
    both, _ = seen(wrap(count_up), jnp.ones(size), last=2, select_ys=lambda leaves: leaves[0])
    assert [(e.step, e.kind) for e in both] == [(48, "carry"), (48, "output"), (49, "carry"), (49, "output")]
    sampled, _ = seen(wrap(count_up), jnp.ones(size), last=3, sample_every=7)
    assert [(e.step, float(e.value)) for e in sampled] == [(35, 37.0), (42, 44.0), (49, 51.0)]
    more, _ = seen(wrap(count_up), jnp.ones(size), last=100)
    assert [e.step for e in more] == list(range(50))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "watch", [tap.watch_nan(), tap.watch_nan("log"), tap.trip(lambda leaves: jnp.isnan(leaves[0]))]
)
def test_what_led_up_to_it(size: int, watch: Any) -> None:
    events, _ = seen(jax.jit(turns_nan), jnp.full(size, 100.0), last=3, taps=[watch])
    # What a tripwire on the carry sends has all leaves; what is kept, the selected number.
    steps = [
        e.step for e in events if e.path == "scan[0]" and np.shape(e.value) == () and not isinstance(e.value, dict)
    ]
    # Two finite steps and the one that tripped; then the newest ones at the end, each once.
    assert {5, 6, 7} <= set(steps) and {9, 10, 11} <= set(steps) and min(steps) == 5


def test_whiles_lanes_and_nests() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda c: c.max() < 10.0, lambda c: c + 1.0, x)

    lanes, _ = seen(jax.jit(jax.vmap(until)), jnp.stack([jnp.ones(3), jnp.full(3, 3.5)]), last=3)
    # The newest three of each lane.
    kept = [(4, (1,)), (5, (1,)), (6, (0,)), (6, (1,)), (7, (0,)), (8, (0,))]
    assert [(e.step, e.lane) for e in lanes] == kept

    def nested(x: Any) -> Any:
        return lax.scan(lambda x, _: (lax.fori_loop(0, 4, lambda i, c: c + 1.0, x), None), x, None, length=3)[0]

    events, _ = seen(nested, jnp.ones(3), last=2)
    assert [(e.step, e.outer) for e in events if e.path == "scan[0]/scan[0]"] == [
        (i, (j,)) for j in range(3) for i in (2, 3)
    ]
    assert [e.step for e in events if e.path == "scan[0]"] == [1, 2]


@pytest.mark.parametrize("size", SIZES)
def test_marks_beside_it(size: int) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda x, _: (tap.mark("half", x * 0.5) + 1.0, None), x, None, length=5)[0]

    events, _ = seen(jax.jit(run), jnp.ones(size), last=2)
    assert [e.step for e in events if e.kind == "carry"] == [3, 4]
    assert [e.step for e in events if e.kind == "mark"] == list(range(5))


def test_loops_of_few_steps_and_none() -> None:
    assert [e.step for e in seen(lambda x: count_up(x, unroll=4), jnp.ones(3), last=2)[0]] == [48, 49]
    events, report = seen(lambda x: lax.while_loop(lambda c: c.max() < 0.0, lambda c: c + 1.0, x), jnp.ones(3), last=2)
    assert events == [] and report.loops[0].executions == 1
    assert seen(lambda x: lax.scan(lambda c, x: (c + x, None), 0.0, x)[0], jnp.zeros(0), last=2)[0] == []


def test_a_function_is_told() -> None:
    steps: list[int] = []
    jax.block_until_ready(tap.verbose(count_up, on_step=lambda e: steps.append(e.step), last=2)(jnp.ones(3)))
    assert steps == [48, 49]
    with pytest.raises(ValueError, match="last must be an integer of at least 1"):
        tap.record(last=0)
