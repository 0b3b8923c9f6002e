"""jaxtap-optax: each call of an optimizer is a row, the result is the same, and what goes wrong is said."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from adapters import optimizers
from adapters.optimizers import OPTIMIZERS, in_python, in_scan, start, stepper, told

import jaxtap as tap
import jaxtap_optax
from jaxtap.testing import assert_identical, assert_untouched

pytestmark = pytest.mark.usefixtures("promotion")


# What the state's own fields say after the last of seven steps.
IN_STATE = {
    "injected": {"learning_rate": 1e-3, "count": 7},
    "multi steps": {"mini_step": 1, "gradient_step": 2, "count": 2},
    "apply if finite": {"notfinite_count": 0, "total_notfinite": 0, "max_consecutive_errors": 2},
    "lbfgs": {"count": 7, "max_linesearch_steps": 20},
    "backtracking": {"max_linesearch_steps": 10, "decrease_error": 0.0},
    "plateau": {"plateau_scale": 1.0, "plateau_min_scale": 0.0},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_in_a_python_loop(name: str) -> None:
    """Compiled before the lens; bits, exact rows, values as taken by hand, no false alarm, nothing left."""
    tx = OPTIMIZERS[name]()
    own = vars(optax.GradientTransformation)["update"], vars(optax.MultiSteps)["update"]
    step = jax.jit(stepper(tx))
    bare, _ = in_python(tx, step=step)
    with jaxtap_optax.watch_updates() as seen:
        watched, _ = in_python(tx, step=step)
    in_python(tx, step=step)
    assert [trip.tripwire for trip in seen.trips] in ([], ["linesearch_failed"])
    assert own == (vars(optax.GradientTransformation)["update"], vars(optax.MultiSteps)["update"])
    assert_identical(watched, bare)
    assert [(row.path, row.step) for row in seen.rows] == [("update[0]", i) for i in range(7)]
    for row, right in zip(seen.rows, told(name), strict=True):
        assert {k: row[k] for k in right} == pytest.approx({k: float(v) for k, v in right.items()}, rel=1e-5)
    for column, right in IN_STATE.get(name, {}).items():
        assert seen.rows[-1].values[column] == pytest.approx(right), column


SCANNED = ["clip and adam", "multi steps", "injected", "apply if finite", "partition", "muon"]


@pytest.mark.parametrize("name", SCANNED)
def test_in_a_scan(name: str) -> None:
    tx = OPTIMIZERS[name]()
    bare = in_scan(tx)
    with jaxtap_optax.watch_updates(tripwires=False) as seen:
        watched = in_scan(tx)
    assert_identical(watched, bare)
    assert [(row.path, row.step, row.total) for row in seen.rows] == [("scan[0]", i, 7) for i in range(7)]
    for row, right in zip(seen.rows, told(name), strict=True):
        assert {k: row[k] for k in right} == pytest.approx({k: float(v) for k, v in right.items()}, rel=1e-4)


def test_moments() -> None:
    tx = optax.adam(1e-2)
    (_, state), _ = in_python(tx)
    with jaxtap_optax.watch_updates() as seen:
        in_python(tx)
    row, (adam, _) = seen.rows[-1], state
    assert row["mu_norm"] == pytest.approx(float(optax.tree.norm(adam.mu)))
    assert row["nu_max"] == pytest.approx(max(float(leaf.max()) for leaf in jax.tree.leaves(adam.nu)))
    assert row["nu_min"] == pytest.approx(min(float(leaf.min()) for leaf in jax.tree.leaves(adam.nu)))
    assert float(jaxtap_optax.mu_norm(state)) == pytest.approx(row["mu_norm"])
    assert int(jaxtap_optax.count(state)) == 7
    with pytest.raises(tap.SelectError, match=r"there is no learning_rate here.*ScaleByAdamState\.count"):
        jaxtap_optax.learning_rate(state)
    twice = optax.partition({"a": tx, "b": tx}, {"w": "a", "v": "b"}).init(start())
    with pytest.raises(tap.SelectError, match=r"count may be any of .*'a'.*count, .*'b'.*count"):
        jaxtap_optax.count(twice)


def test_selectors_in_a_tap() -> None:
    tx = OPTIMIZERS["injected"]()
    bare = in_scan(tx)
    with tap.record(select=jaxtap_optax.learning_rate) as rec:
        watched = in_scan(tx)
    assert_identical(watched, bare)
    schedule = optax.linear_schedule(1e-2, 1e-3, 5)
    assert [float(e.value) for e in rec.events] == pytest.approx([float(schedule(i)) for i in range(7)])


def test_a_line_search_is_an_inner_loop() -> None:
    tx = optax.lbfgs(memory_size=2)
    (bare, _), rows = in_python(tx, 3), []
    with (
        jaxtap_optax.watch_updates(on_row=rows.append),
        tap.record(select=jaxtap_optax.decrease_error) as errors,
        tap.record(select=jaxtap_optax.failed) as failures,
    ):
        watched, _ = in_python(tx, 3)
    assert_identical(watched, bare)
    steps = [row["linesearch_steps"] for row in rows]
    for rec in (errors, failures):
        assert [sum(event.call == i for event in rec.events) for i in range(3)] == steps


def test_muon_runs_newton_schulz() -> None:
    """Its loop has an unnamed matrix for a state; the place in Optax tells it."""
    tx = optax.contrib.muon(1e-2)
    with tap.record() as rec:
        in_python(tx, 2)
    steps = [(e.call, e.step) for e in rec.events if e.source.startswith("_muon.py")]
    assert steps == [(call, step) for call in range(2) for step in range(5)]


def test_stages_of_a_chain() -> None:
    tx = OPTIMIZERS["clip and adam"]()
    with jaxtap_optax.watch_updates(tripwires=False) as seen:
        in_python(tx)
    for row in seen.rows:
        assert row["clip_before"] == row["grad_norm"] and row["clip_after"] == pytest.approx(0.1)
        assert row["stage_norm/0 clip_by_global_norm"] == row["clip_after"]
        assert row["stage_norm/1 scale_by_adam+scale"] == pytest.approx(row["update_norm"])
        assert row["clip_ratio"] == pytest.approx(0.1 / row["grad_norm"], rel=1e-5)


def test_depth_and_one_transformation() -> None:
    inner = optax.scale_by_adam()
    tx = optax.chain(optax.clip(1.0), optax.masked(inner, {"w": True, "v": False}))
    with jaxtap_optax.watch_updates(depth=2, tripwires=False) as deep:
        in_python(tx, 2)
    assert {row.path.partition("_")[0] for row in deep.rows} == {"update[0]", "clip", "scale"}
    other = optax.sgd(0.1)
    with jaxtap_optax.watch_updates(other) as one:
        in_python(tx, 2)
        in_python(other, 3)
    assert len(one.rows) == 3


@pytest.mark.parametrize("name", ["clip and adam", "multi steps", "adam"])
def test_unpacked(name: str) -> None:
    """What is unpacked is out of sight as a whole, unless it is `watched`."""
    tx = OPTIMIZERS[name]()

    def run(tx: Any) -> Any:
        init, update = tx

        @jax.jit
        def step(params: Any, state: Any) -> Any:
            updates, state = update(jax.grad(optimizers.value)(params), state, params)
            return optax.apply_updates(params, updates), state

        state = (start(), init(start()))
        for _ in range(3):
            state = step(*state)
        return state

    plain = tx.gradient_transformation() if name == "multi steps" else tx
    explicit = jaxtap_optax.watched(tx)
    assert type(explicit) is type(plain) and jaxtap_optax.watched(explicit) is explicit
    bare = run(plain)
    assert_identical(run(explicit), bare)
    with jaxtap_optax.watch_updates() as seen:
        assert_identical(run(explicit), bare)
        jax.jit(lambda params: explicit.update(params, explicit.init(params), params))(start())
    assert len(seen.rows) == 4
    assert not jax.make_jaxpr(lambda: run(explicit))().effects
    with pytest.raises(TypeError, match=r"tx must be an optax.GradientTransformation or optax.MultiSteps; got str"):
        jaxtap_optax.watched("adam")


def test_a_bare_function_is_out_of_sight() -> None:
    init, update = optax.GradientTransformation(lambda _: (), lambda updates, state, params=None: (updates, state))
    nothing = r"watch_updates has seen nothing\..*jaxtap_optax.watched"
    with pytest.warns(tap.JaxtapWarning, match=nothing), jaxtap_optax.watch_updates():
        update(start(), init(start()))


def test_under_vmap() -> None:
    tx = optax.adam(1e-2)

    def run(scale: Any) -> Any:
        params = jax.tree.map(lambda p: p * scale, start())
        updates, _ = tx.update(jax.grad(optimizers.value)(params), tx.init(params), params)
        return optax.apply_updates(params, updates)

    scales = jnp.array([1.0, 0.5, 2.0])
    seen = assert_untouched(jax.jit(jax.vmap(run)), scales, lens=jaxtap_optax.watch_updates)
    norm = float(optax.tree.norm(start()))
    assert [row.lane for row in seen.rows] == [(0,), (1,), (2,)]
    assert [row["param_norm"] for row in seen.rows] == pytest.approx([norm, norm / 2, norm * 2])


# --- What goes wrong -----------------------------------------------------------------------------------------


def feed(tx: Any, grads: Any, **extra: Any) -> Any:
    """Give an optimizer gradients, one after the other."""

    @jax.jit
    def step(params: Any, state: Any, grad: Any) -> Any:
        updates, state = tx.update(grad, state, params, **extra)
        return optax.apply_updates(params, updates), state

    params = jnp.ones(4)
    state = tx.init(params)
    for grad in grads:
        params, state = step(params, state, jnp.full(4, grad))
    return params


NAN = float("nan")
FAULTS = {
    "update_skipped": (
        lambda: optax.apply_if_finite(optax.sgd(0.1), 5),
        [1.0, 1.0, NAN, 1.0],
        2,
        "gradient is not finite: apply_if_finite skips the update (1 in a row)",
    ),
    "bad_update_accepted": (
        lambda: optax.apply_if_finite(optax.sgd(0.1), 2),
        [1.0, NAN, NAN, NAN],
        2,
        "2 updates in a row were not finite: apply_if_finite accepts the next (limit 2)",
    ),
    "clip_saturated": (
        lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
        [0.1] * 5 + [5.0] * 115,
        99,
        "clip active in 95% of the last 100 steps (norm cut to 0.1 of itself)",
    ),
    "learning_rate_died": (
        lambda: optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(0.1, 0.0, 2)),
        [1.0] * 6,
        3,
        "learning rate 0 (< 1e-08)",
    ),
    "second_moment_not_finite": (lambda: optax.adam(0.1), [1.0, NAN], 1, "second moment is not finite: nan"),
    "second_moment_explodes": (
        lambda: optax.adam(0.1),
        [0.01] * 12 + [300.0],
        12,
        "second moment 90 is over 1e+04 times its median",
    ),
    "never_emits": (
        lambda: optax.MultiSteps(optax.sgd(0.1), 2, should_skip_update_fn=optax.skip_not_finite),
        [1.0, 1.0] + [NAN] * 205,
        200,
        "MultiSteps has emitted nothing in 200 mini-steps (gradient step 1)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, capfd: Any) -> None:
    make, grads, step, message = FAULTS[name]
    with jaxtap_optax.watch_updates() as seen:
        feed(make(), grads)
    found = [trip for trip in seen.trips if trip.tripwire == name]
    assert [(trip.row.step, trip.message) for trip in found] == [(step, message)]
    assert f"[tap] FAIL update[0] {step}/?: {message}" in capfd.readouterr().err.splitlines()


def test_a_plateau_that_has_gone_down_to_its_floor() -> None:
    tx = optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau(factor=0.1, patience=1, min_scale=0.01))
    with jaxtap_optax.watch_updates() as seen:
        feed(tx, [1.0] * 8, value=jnp.float32(1.0))
    (trip,) = seen.trips
    first = next(row.step for row in seen.rows if row["plateau_scale"] <= 0.0100001)
    assert (trip.tripwire, trip.row.step) == ("plateau_floor", first)
    assert trip.message == "reduce_on_plateau is at its floor: scale 0.01"


def test_a_line_search_at_its_limit() -> None:
    """Along a direction that does not descend, no step is short enough."""
    tx = optax.scale_by_backtracking_linesearch(3)

    def f(x: Any) -> Any:
        return jnp.sum(x**2)

    x = jnp.ones(4)
    with jaxtap_optax.watch_updates() as seen:
        tx.update(x, tx.init(x), x, value=f(x), grad=2 * x, value_fn=f)
    assert [trip.tripwire for trip in seen.trips] == ["linesearch_at_limit", "linesearch_failed"]
    assert seen.trips[0].message.startswith("line search took all its 3 steps")


def test_tuning(capfd: Any) -> None:
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    tuned = [*jaxtap_optax.tripwires(), jaxtap_optax.clip_saturated(window=3, share=1.0)]
    for tripwires, count in ((tuned, 1), (False, 0), ([], 0)):
        with jaxtap_optax.watch_updates(tripwires=tripwires) as seen:
            feed(tx, [5.0] * 6)
        assert len(seen.trips) == count == len(capfd.readouterr().err.splitlines())
    with pytest.raises(TypeError, match=re.escape("tripwires must be True, False or a list of tripwires")):
        jaxtap_optax.watch_updates(tripwires=["clip"])
    with pytest.raises(ValueError, match="depth must be an integer of at least 0"):
        jaxtap_optax.watch_updates(depth=-1)
