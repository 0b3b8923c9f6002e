"""Fixtures for pytest: write `pytest_plugins = ["jaxtap.testing.fixtures"]` in the `conftest.py` at the root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jaxtap._api import record
from jaxtap._recorder import FlightRecorder
from jaxtap.testing._clock import Clock


@pytest.fixture
def jaxtap_recorder() -> Iterator[FlightRecorder]:
    """A lens that is open for the time of a test, and the recorder of all that it sees.

    Call `jaxtap.testing.wait()` before looking at `jaxtap_recorder.events`.
    """
    with record() as recorder:
        yield recorder


@pytest.fixture
def jaxtap_clock() -> Iterator[Clock]:
    """A clock that shows 0.0 until it is told to go on."""
    with Clock() as clock:
        yield clock
