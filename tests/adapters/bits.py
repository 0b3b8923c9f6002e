"""Comparing results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """Every bit is the same."""
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(a), jax.tree.leaves(b))
