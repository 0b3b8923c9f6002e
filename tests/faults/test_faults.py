"""Faults, each a few times; `nox -s faults` tries them often."""

from __future__ import annotations

import random

import pytest
from faults.trials import FAULTS, NotPossible


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.quick])
def test_no_more_is_lost_than_may_be(name: str) -> None:
    fault = FAULTS[name]
    try:
        outcome = fault.trial(fault.quick, random.Random(name))
    except NotPossible as reason:
        pytest.skip(str(reason))
    assert outcome.tried >= fault.quick and outcome.lost
