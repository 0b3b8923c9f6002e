"""The four distributions are released together, and each carries what its users need."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    "jaxtap-core": "jaxtap",
    "jaxtap-blackjax": "jaxtap_blackjax",
    "jaxtap-flax": "jaxtap_flax",
    "jaxtap-optax": "jaxtap_optax",
}
ADAPTERS = [name for name in MODULES if name != "jaxtap-core"]


def requirements(distribution: str) -> set[str]:
    """What a distribution needs without any extra, as written in its metadata."""
    return {line for line in importlib.metadata.requires(distribution) or [] if "extra ==" not in line}


@pytest.mark.parametrize("distribution", MODULES)
def test_every_version_is_the_core_version(distribution: str):
    core = importlib.metadata.version("jaxtap-core")
    assert importlib.metadata.version(distribution) == core
    assert importlib.import_module(MODULES[distribution]).__version__ == core


@pytest.mark.parametrize("distribution", ADAPTERS)
def test_adapters_ask_for_the_core_of_their_own_release(distribution: str):
    major, minor, _ = importlib.metadata.version(distribution).split(".")
    assert requirements(distribution) == {f"jaxtap-core~={major}.{minor}.0"}


def test_core_needs_only_jax_and_numpy():
    assert {re.split(r"\W", line)[0] for line in requirements("jaxtap-core")} == {"jax", "numpy"}


@pytest.mark.parametrize("distribution", MODULES)
def test_wheel_ships_its_license_and_its_types(distribution: str):
    files = {str(path): path for path in importlib.metadata.files(distribution) or []}
    assert f"{MODULES[distribution]}/py.typed" in files
    (license_file,) = (path for name, path in files.items() if name.endswith(".dist-info/licenses/LICENSE"))
    assert license_file.read_text() == (ROOT / "LICENSE").read_text()


def test_the_changelog_has_the_version():
    assert f"## [{importlib.metadata.version('jaxtap-core')}]" in (ROOT / "CHANGELOG.md").read_text()
