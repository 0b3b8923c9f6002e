"""What importing jaxtap loads, and which private modules its source may not reach for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxtap

PACKAGES = Path(__file__).parent.parent / "packages"
SOURCES = sorted(PACKAGES.glob("*/src/**/*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(PACKAGES))


def test_the_installed_package_is_tested_not_the_checkout():
    assert not Path(jaxtap.__file__).is_relative_to(PACKAGES)


@pytest.mark.parametrize("module", ["jaxtap", "jaxtap_blackjax", "jaxtap_flax", "jaxtap_optax"])
def test_import_loads_no_library_that_is_not_needed(module: str):
    libraries = {"pandas", "flax", "optax", "blackjax", "matplotlib", "tqdm"}
    code = f"import sys, {module}; print(*sorted({libraries} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


# The files that lean on a module inside JAX, each with its reason; tests/core/test_private.py watches them.
REASONED = ("_pruned.py", "_jit_frames.py", "_dispatch.py")


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name not in REASONED], ids=relative)
def test_source_does_not_mention_private_modules_of_jax(path: Path):
    assert "jax._src" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in SOURCES if "jaxtap-core" not in path.parts], ids=relative)
def test_adapters_use_only_the_public_core(path: Path):
    """`jaxtap` and `jaxtap.internal` are theirs to use, `jaxtap._anything` is not."""
    assert not re.search(r"\bjaxtap\._|\bfrom jaxtap import .*\b_[a-z]", path.read_text(encoding="utf-8"))


def test_both_distributions_installed(tmp_path: Path):
    """jax-tap installs the same import name: importing says so once, names both and what to uninstall."""
    (tmp_path / "jax_tap-0.3.1.dist-info").mkdir()
    (tmp_path / "jax_tap-0.3.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: jax-tap\nVersion: 0.3.1\n"
    )
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import jaxtap; import jaxtap as again"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.count("are both installed") == 1
    assert "jaxtap-core 0.4.0" in run.stderr and "jax-tap 0.3.1" in run.stderr and "pip uninstall jax-tap" in run.stderr
