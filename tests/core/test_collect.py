"""What a collected program returns: the result, and the events that a recording of it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core.waiting import PROGRAMS, bits, by_address, events_of, leapfrog, uneven
from jax import lax

import jaxtap as tap

START = jnp.array([0.1, 0.7, -0.3, 2.0])


def shown(events: Any) -> list[tuple[Any, ...]]:
    """Events without times, values as bytes."""
    return [(e.kind, e.path, e.step, e.outer, e.lane, e.call, e.total, *bits(e.value)) for e in events]


@pytest.mark.parametrize("program", [name for name, (_, options) in PROGRAMS.items() if "last" not in options])
def test_same_events_and_result_as_a_recording(program: str) -> None:
    f, options = PROGRAMS[program]
    expected_result, expected = events_of(f, **options, buffer=1)
    result, found = jax.jit(tap.collect(f, **options, last=4000))(START)
    assert by_address(shown(found.events)) == by_address(expected)
    assert bits(result) == bits(expected_result)
    assert found.report().ok and not found.dropped


def test_the_newest_events_of_each_loop_are_kept() -> None:
    _, everything = jax.jit(tap.collect(leapfrog))(START)
    _, newest = jax.jit(tap.collect(leapfrog, last=3))(START)
    for path in ("scan[0]", "scan[0]/scan[0]"):
        of_all, of_newest = ([e for e in each.events if e.path == path] for each in (everything, newest))
        assert [(e.step, e.outer, *bits(e.value)) for e in of_newest] == [
            (e.step, e.outer, *bits(e.value)) for e in of_all[-3:]
        ]
    assert newest.dropped == len(everything.events) - 6


def test_nothing_calls_the_host() -> None:
    g = jax.jit(tap.collect(leapfrog))
    assert "callback" not in g.lower(START).as_text()
    assert not jax.make_jaxpr(g)(START).effects


def test_compiled_ahead_of_time_and_exported() -> None:
    g = jax.jit(tap.collect(leapfrog))
    expected = shown(g(START)[1].events)
    assert shown(g.lower(START).compile()(START)[1].events) == expected
    assert shown(jax.export.export(g)(START).call(START)[1].events) == expected


def test_an_unknown_number_of_steps_needs_last() -> None:
    with pytest.raises(ValueError, match=r"lies in a while loop .* pass last=n"):
        tap.collect(uneven)(START)


def test_searching_for_an_equation_needs_the_host() -> None:
    with pytest.raises(ValueError, match=r"watch_nan\(\) without names needs the host"):
        tap.collect(leapfrog, taps=[tap.watch_nan()])(START)


def test_a_named_tripwire_is_kept() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, t: (c + jnp.log(t), None), x, jnp.array([1.0, 2.0, -1.0, 3.0]))[0]

    _, found = jax.jit(tap.collect(f, taps=[tap.watch_nan("log"), tap.on("add")], ops=()))(0.0)
    assert [(e.path, e.step) for e in found.trips()] == [("scan[0]/log[0]", 2)]
    assert len(found.events) == 5


def test_a_tripwire_is_decided_at_each_step_whatever_is_sampled() -> None:
    def count_up(x: Any) -> Any:
        return lax.scan(lambda c, x: (c + x, None), 0.0, x)[0]

    late = tap.trip(lambda leaves: leaves[0] > 15.0, select=lambda leaves: leaves[0])
    _, collected = tap.collect(count_up, sample_every=10, taps=[late])(jnp.ones(30))
    assert [event.step for event in collected.trips()] == list(range(15, 30))
    # What is sampled stands beside what the tripwire has sent.
    assert sorted(event.step for event in collected.events) == sorted([0, 10, 20, *range(15, 30)])


def test_values_are_not_there_while_a_program_is_traced() -> None:
    @jax.jit
    def f(x: Any) -> Any:
        _, found = tap.collect(leapfrog)(x)
        return len(found.events)

    with pytest.raises(TypeError, match="being traced"):
        f(START)


def test_collect_the_mapped_function() -> None:
    mapped = jax.vmap(tap.collect(leapfrog))(jnp.stack([START, START]))[1]
    with pytest.raises(TypeError, match=r"collect\(jax.vmap\(f\)\)"):
        mapped.events  # noqa: B018 - raises
    found = tap.collect(jax.vmap(leapfrog))(jnp.stack([START, START]))[1]
    assert {event.lane for event in found.events} == {(0,), (1,)}


def test_arguments_that_are_no_arrays() -> None:
    def f(x: Any, *, length: Any, name: str) -> Any:
        assert name == "own"
        return lax.scan(lambda c, _: (c + length["n"], None), x, None, length=3)[0]

    result, found = tap.collect(f)(1.0, length={"n": 2.0}, name="own")
    assert float(result) == 7.0 and len(found.events) == 3


CACHED = """
import sys
import jax, jax.numpy as jnp
import jaxtap as tap
from jax import lax

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
g = jax.jit(tap.collect(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) + i, x)))
before = len(hits)
_, found = g(jnp.float32(1.0))
print(len(hits) > before, len(found.events))
"""


def test_kept_by_the_persistent_cache(tmp_path: Path) -> None:
    said = [
        subprocess.run([sys.executable, "-c", CACHED, tmp_path], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [line.split() for line in said] == [["False", "5"], ["True", "5"]]


def test_values_are_numpy() -> None:
    _, found = tap.collect(leapfrog)(START)
    assert all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in jax.tree.leaves(found.events[0].value))
