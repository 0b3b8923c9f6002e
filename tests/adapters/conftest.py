"""What the tests of the adapters share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def promotion() -> Iterator[None]:
    """Flax and Optax rely on implicit promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
