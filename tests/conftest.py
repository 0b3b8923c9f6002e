"""Set JAX up for all tests. Nothing is cleared between tests: a lens promises to leave nothing behind."""

from __future__ import annotations

import atexit
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

# What XLA has compiled once it compiles for no other test and no other worker of this run. What tests start in
# processes of their own has no cache.
_COMPILED = "JAXTAP_TESTS_COMPILED"


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


if _COMPILED not in os.environ:
    os.environ[_COMPILED] = tempfile.mkdtemp(prefix="jaxtap-tests-")
    atexit.register(_remove, os.environ[_COMPILED], os.getpid())
jax.config.update("jax_compilation_cache_dir", os.environ[_COMPILED])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def no_cache() -> Iterator[None]:
    """As for a user who has not set a persistent cache."""
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    # JAX looks once whether there is one, and says so.
    jax.jit(lambda: 0.0)()
    yield
    jax.config.update("jax_compilation_cache_dir", os.environ[_COMPILED])
    compilation_cache.reset_cache()
