"""Set JAX up for all tests. Nothing is cleared between tests: a lens promises to leave nothing behind."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most programs use the first of these devices, as they would if it were the only one. What tests start in processes of
# their own has one.
jax.config.update("jax_num_cpu_devices", 8)
