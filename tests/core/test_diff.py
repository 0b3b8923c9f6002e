"""Two recordings compared: where they part, and that nothing else is said to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core.flushes import flushed, random_times, story
from jax import lax

import jaxtap as tap


def sampler(seed: int = 0, dtype: str = "float32", steps: int = 20, rate: float = 0.5) -> tap.FlightRecorder:
    """A nest of loops under vmap, with a key in its state."""

    def step(state: Any, t: Any) -> Any:
        key, sub = jax.random.split(state["key"])
        jump = jax.random.normal(sub, (2,), dtype)
        x = lax.fori_loop(0, 3, lambda i, x: x * jnp.asarray(rate, dtype), state["x"] + jump)
        return {"x": x, "n": state["n"] + 1, "key": key}, jnp.abs(x).sum()

    def chain(key: Any) -> Any:
        start = {"x": jnp.ones(2, dtype), "n": jnp.int32(0), "key": key}
        return lax.scan(step, start, jnp.arange(steps))

    with tap.record(select_ys=lambda leaves: leaves[0]) as rec:
        jax.vmap(chain)(jax.random.split(jax.random.key(seed), 3))
    return rec


def changed(rec: tap.FlightRecorder, index: int, **fields: Any) -> list[tap.TapEvent]:
    events = list(rec.events)
    events[index] = dataclasses.replace(events[index], **fields)
    return events


def find(rec: tap.FlightRecorder, **fields: Any) -> int:
    return next(i for i, event in enumerate(rec.events) if all(getattr(event, n) == v for n, v in fields.items()))


@pytest.fixture(scope="module")
def rec() -> tap.FlightRecorder:
    return sampler()


def test_a_program_run_again_is_the_same(rec: tap.FlightRecorder, tmp_path: Path) -> None:
    with tap.JSONLWriter(tmp_path / "run.jsonl") as writer:
        for event in rec.events:
            writer(event)
    same: list[Any] = [sampler(), list(rec.events)[::-1], rec.events, writer.path, str(writer.path)]
    for other in same:
        found = tap.diff(rec, other)
        assert not found and found.first is None and (found.only_a, found.only_b) == (0, 0)
        assert repr(found) == f"the recordings are the same: {len(rec.events)} events"
        assert not tap.diff(other, rec)


def test_one_flipped_bit(rec: tap.FlightRecorder) -> None:
    at = find(rec, path="scan[0]", step=7, lane=(1,), kind="carry")
    value = tuple(np.array(leaf) if leaf.shape == (2,) else leaf for leaf in rec.events[at].value)
    x = next(leaf for leaf in value if isinstance(leaf, np.ndarray) and leaf.shape == (2,))
    x.view(np.uint32)[1] ^= 1
    found = tap.diff(rec, changed(rec, at, value=value))
    assert found and len(found.partings) == 1 and (found.differing, found.compared) == (1, len(rec.events))
    first = found.first
    assert first is not None
    assert (first.path, first.kind, first.step, first.lane, first.leaf, first.index, first.what) == (
        "scan[0]", "carry", 7, (1,), "state['x']", (1,), "differs",
    )  # fmt: skip
    assert first.b == x[1] and first.a != first.b and [step for step, _, _ in first.around] == [4, 5, 6, 7, 8, 9, 10]
    assert all((a == b) == (step != 7) for step, a, b in first.around)
    assert not tap.diff(rec, changed(rec, at, value=value), rtol=1e-6)


def test_another_seed(rec: tap.FlightRecorder) -> None:
    found = tap.diff(rec, sampler(seed=1))
    first = found.first
    assert first is not None and (first.step, first.lane, first.what) == (0, (0,), "differs")
    assert found.only_a == found.only_b == 0
    parted = {(parting.path, parting.leaf) for parting in found.partings}
    assert ("scan[0]", "state['n']") not in parted
    assert {("scan[0]", "state['x']"), ("scan[0]", "state['key']")} <= parted


def test_another_dtype(rec: tap.FlightRecorder) -> None:
    found = tap.diff(sampler(rate=0.25), sampler(rate=0.25, dtype="bfloat16"), rtol=1.0, atol=1e9)
    assert not found.partings or {parting.leaf for parting in found.partings} == {"state['key']"}
    assert "scan[0] (carry): state['x'] is float32 in a, bfloat16 in b" in found.notes and found


def test_a_missing_tail(rec: tap.FlightRecorder) -> None:
    short = sampler(steps=17)
    for a, b, name in ((rec, short, "a"), (short, rec, "b")):
        found = tap.diff(a, b)
        first = found.first
        assert first is not None and first.what == f"only in {name}" and first.leaf is None
        assert (first.step, first.lane) == (17, (0,)) or first.outer == (17,)
        assert found.differing == 0 and found.compared == len(short.events)
        assert (found.only_a if name == "a" else found.only_b) == len(rec.events) - len(short.events)
        assert f"are only in {name}" in repr(found)


def test_the_place_of_what_only_the_second_has() -> None:
    events = [tap.TapEvent("scan[0]", step, np.float32(step)) for step in range(6)]
    a = [event for event in events if event.step != 2]
    b = [dataclasses.replace(event, value=np.float32(9)) if event.step == 4 else event for event in events]
    found = tap.diff(a, b)
    assert [(parting.step, parting.what) for parting in found.partings] == [(2, "only in b"), (4, "differs")]


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "same"),
    [
        (np.float32("nan"), np.float32("nan"), {}, True),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), {}, True),
        (np.uint32(0x7FC00001).view(np.float32), np.float32("nan"), {}, True),
        (np.float32(0.0), np.float32(-0.0), {}, False),
        (np.float32(0.0), np.float32(-0.0), {"atol": 1e-9}, True),
        (np.float32(1.0), np.float32(1.1), {"rtol": 0.1}, True),
        (np.float32(1.0), np.float32(1.1), {"rtol": 0.05}, False),
        (np.float32(1.0), np.float32(1.1), {"atol": 0.11}, True),
        (np.float32("inf"), np.float32("inf"), {"rtol": 0.1}, True),
        (np.float32("inf"), np.float32(1.0), {"rtol": 0.1}, False),
        (np.float32(1.0), np.float32("inf"), {"rtol": 0.1}, False),
        (np.float32("nan"), np.float32(0.0), {"atol": 9.0}, False),
        (np.int32(2**31 - 1), np.int32(2**31 - 2), {}, False),
        (np.int32(5), np.int32(4), {"atol": 1}, True),
        (np.bool_(True), np.bool_(False), {}, False),
        (np.complex64(1 + 2j), np.complex64(1 + 2j), {}, True),
        (np.complex64(1 + 2j), np.complex64(1 + 3j), {"atol": 0.5}, False),
        ("left", "left", {}, True),
        ("left", "right", {}, False),
        (0.5, 0.5, {}, True),
        (np.ones(3), np.ones(4), {}, False),
        (jnp.bfloat16(1.5), jnp.bfloat16(1.5), {}, True),
        (jax.random.key(0), jax.random.key(0), {}, True),
        (jax.random.key(0), jax.random.key(1), {}, False),
        ({"a": np.float32(1), "b": "x"}, {"a": np.float32(1), "b": "x"}, {}, True),
        ({"a": np.float32(1)}, {"b": np.float32(1)}, {}, False),
        ({"a": np.float32(1)}, {"a": np.float32(1), "b": np.float32(1)}, {}, False),
        ((), (), {}, True),
    ],
)
def test_values(a: Any, b: Any, tolerance: dict[str, float], same: bool) -> None:
    one, other = ([tap.TapEvent("scan[0]", 0, value)] for value in (a, b))
    found = tap.diff(one, other, **tolerance)
    assert bool(found) != same
    repr(found)


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (np.zeros(3), np.zeros(4), r"scan[0] (carry): value has shape (3,) in a, (4,) in b"),
        (np.float32(0), np.float64(0), "scan[0] (carry): value is float32 in a, float64 in b"),
        ({"x": 1.0}, {"y": 1.0}, "scan[0] (carry): only a has x\nscan[0] (carry): only b has y"),
        (np.array([1.0, 2.0]), np.array([1.0, 3.0]), "the recordings part at scan[0] step 4, lane 2, outer steps "
         "(1, 3), call 5, value[1]: 2.0 in a, 3.0 in b"),
    ],
)  # fmt: skip
def test_what_it_says(a: Any, b: Any, says: str) -> None:
    one, other = ([tap.TapEvent("scan[0]", 4, v, lane=(2,), outer=(1, 3), call=5)] for v in (a, b))
    assert says in repr(tap.diff(one, other))


def plainly(one: list[tap.TapEvent], other: list[tap.TapEvent]) -> tuple[Any, Any, Any]:
    """What a plain reading of two recordings says: which events differ, and which only one of them has."""

    def places(events: list[tap.TapEvent]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for e in events:
            key: tuple[Any, ...] = (e.path, e.kind, e.call, e.outer, e.step, e.lane)
            key += (sum(k[:6] == key for k in found),)
            found[key] = [np.asarray(leaf).tobytes() for leaf in e.value]
        return found

    a, b = places(one), places(other)
    return {k for k in a.keys() & b.keys() if a[k] != b[k]}, a.keys() - b.keys(), b.keys() - a.keys()


@pytest.mark.parametrize("seed", range(10))
def test_random_recordings_with_random_changes(seed: int) -> None:
    lens, rows = story(seed)
    flushed(lens, rows, random_times(rows, seed))
    assert lens.recorder is not None
    events, random = list(lens.recorder.events), np.random.default_rng(seed)
    other = [event for event in events if random.random() > 0.05]
    for i in random.integers(0, len(other), 5).tolist():
        leaves = list(other[i].value)
        leaves[0] = leaves[0] + np.float32(1)
        other[i] = dataclasses.replace(other[i], value=tuple(leaves))
    random.shuffle(other)  # pyright: ignore[reportArgumentType]
    differ, only_a, only_b = plainly(events, other)
    found = tap.diff(lens.recorder, other)
    assert (found.differing, found.only_a, found.only_b) == (len(differ), len(only_a), len(only_b))
    first = found.first
    assert first is not None
    keys = [(e.path, e.kind, e.call, e.outer, e.step, e.lane) for e in events]
    at = min(i for i, key in enumerate(keys) if any(k[:6] == key for k in (*differ, *only_a)))
    assert (first.path, first.kind, first.call, first.outer, first.step, first.lane) == keys[at]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"rtol": -1}, ValueError, "rtol must be a number of at least 0"),
        ({"atol": float("nan")}, ValueError, "atol must be a number of at least 0"),
        ({"context": -1}, ValueError, "context must be an integer of at least 0"),
        ({"b": 5}, TypeError, "b must be a recorder, a sequence of events, or the path of a file"),
        ({"a": [5]}, TypeError, "a must be a recorder, a sequence of events"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        tap.diff(**{"a": [], "b": [], **arguments})
