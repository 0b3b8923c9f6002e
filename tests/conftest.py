"""Set JAX up for all tests. Nothing is cleared between tests: a lens promises to leave nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most programs use the first of these devices, as they would if it were the only one. What tests start in processes of
# their own has one.
jax.config.update("jax_num_cpu_devices", 8)

# What XLA has compiled for one test it compiles for no other of the same worker. Another worker's files may be half
# written when JAX reads them. What tests start in processes of their own has no cache.
COMPILED = tempfile.mkdtemp(prefix="jaxtap-tests-")
jax.config.update("jax_compilation_cache_dir", COMPILED)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_unconfigure() -> None:
    """Take the folder away."""
    shutil.rmtree(COMPILED, ignore_errors=True)


@pytest.fixture
def no_cache() -> Iterator[None]:
    """As for a user who has not set a persistent cache."""
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    # JAX looks once whether there is one, and says so.
    jax.jit(lambda: 0.0)()
    yield
    jax.config.update("jax_compilation_cache_dir", COMPILED)
    compilation_cache.reset_cache()
