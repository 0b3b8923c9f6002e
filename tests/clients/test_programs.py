"""Unmodified programs of other libraries, run bare and under a lens."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest
from programs import PROGRAMS, Program, place_of, shape_of

import jaxtap as tap


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one program.

    Attributes:
      program: which.
      bare: its result without a lens.
      seen: its result under a lens that sees everything.
      everything: the recorder of that lens.
      glimpsed: its result under the narrow lens.
      little: the recorder of that lens.
      after: its result when both lenses are closed.
      late: how many events came in then.
      effects: effects of its jaxpr then.
    """

    program: Program
    bare: Any
    seen: Any
    everything: tap.FlightRecorder
    glimpsed: Any
    little: tap.FlightRecorder
    after: Any
    late: int
    effects: Any


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.name)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """A program of the table, run without a lens, under two, and without again."""
    program: Program = request.param
    run = program.make()
    bare = jax.block_until_ready(run())
    with tap.record() as everything:
        seen = run()
    with tap.record(**program.lens) as little:
        glimpsed = run()
    before = len(everything.events) + len(little.events)
    after = run()
    jax.effects_barrier()
    late = len(everything.events) + len(little.events) - before
    effects = jax.make_jaxpr(run)().effects
    return Outcome(program, bare, seen, everything, glimpsed, little, after, late, effects)


# An inner loop is seen in a copy of the step around it, which may round differently in some last bit. In a sampler,
# whether a trajectory ends can hang on that: so many of its tens of thousands of steps may be missing or be too many.
SLACK = 2


def bits(tree: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every leaf of a result by name: dtype, shape and bytes."""

    def image(leaf: Any) -> tuple[str, tuple[int, ...], bytes]:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()

    arrays = jax.tree.map(jax.numpy.asarray, tree)
    return {jax.tree_util.keystr(path): image(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(arrays)}


def moved(one: Any, other: Any) -> list[str]:
    """The leaves in which two results differ by any bit."""
    first, second = bits(one), bits(other)
    assert first.keys() == second.keys()
    return [name for name in first if first[name] != second[name]]


@pytest.mark.parametrize("lens", ["seen", "glimpsed", "after"])
def test_the_result_is_the_same(outcome: Outcome, lens: str) -> None:
    assert moved(outcome.bare, getattr(outcome, lens)) == []


def test_every_loop_is_seen_as_often_as_the_library_says(outcome: Outcome) -> None:
    events = collections.Counter(event.path for event in outcome.everything.events)
    found = collections.defaultdict(list)
    for path in sorted(events, key=place_of):
        found[shape_of(path)].append(events[path])
    said = outcome.program.counts(outcome.bare)
    # Where the library does not say how often, once is enough.
    filled = {shape: [n or m for n, m in itertools.zip_longest(counts, found[shape])] for shape, counts in said.items()}
    assert found.keys() == filled.keys()
    for shape, counts in filled.items():
        assert np.allclose(found[shape], counts, rtol=0, atol=SLACK), shape


def test_every_chain_is_seen(outcome: Outcome) -> None:
    if outcome.program.lanes is None:
        assert {event.lane for event in outcome.everything.events} == {()}
        return
    events = collections.Counter((shape_of(event.path), event.lane) for event in outcome.everything.events)
    for shape, counts in outcome.program.lanes(outcome.bare).items():
        assert np.allclose([events[shape, (lane,)] for lane in range(len(counts))], counts, rtol=0, atol=SLACK)


def test_values_are_those_that_the_library_returns(outcome: Outcome) -> None:
    if outcome.program.told is None:
        assert {event.value for event in outcome.little.events} == {()}
        return
    values = outcome.program.read(np.stack([event.value for event in outcome.little.events]))
    told = np.asarray(outcome.program.told(outcome.bare))
    assert (values.dtype, values.shape, values.tobytes()) == (told.dtype, told.shape, told.tobytes())


def test_the_account_is_in_order(outcome: Outcome) -> None:
    for recorder in (outcome.everything, outcome.little):
        report = recorder.report()
        assert report.ok, report
        assert report.delivered == report.expected == len(recorder.events)
        assert report.unknown == ()
        assert all(loop.source for loop in report.loops), report


def test_nothing_stays_behind(outcome: Outcome) -> None:
    assert outcome.late == 0
    assert not outcome.effects
