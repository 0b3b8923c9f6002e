"""Random loop programs that meet no stated condition give the same bits with and without a tap of each kind."""

from __future__ import annotations

import pytest
from fidelity.conditions import stated
from fidelity.plans import Plan, plans
from fidelity.programs import TAPS, certificates, kinds_for, source
from hypothesis import HealthCheck, Phase, given, note, seed, settings

PROGRAMS = 40

SETTINGS = settings(
    max_examples=PROGRAMS,
    # A program takes as long as XLA takes to compile it.
    deadline=None,
    database=None,
    # Each attempt to make a failing program smaller compiles it anew. `python -m fidelity` does that.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::jaxtap.JaxtapWarning")
@pytest.mark.parametrize("kind", TAPS)
def test_no_bit_moves(kind: str) -> None:
    events: list[int] = []

    @seed(sorted(TAPS).index(kind))  # each kind has programs of its own
    @SETTINGS
    @given(plans().filter(lambda plan: kind in kinds_for(plan) and not stated(plan)))
    def compare(plan: Plan) -> None:
        note(source(plan))
        found = certificates(plan, [kind])[kind]
        events.append(found.events)
        assert found.repeatable and found, found

    compare()
    assert len(events) == PROGRAMS and sum(events)
