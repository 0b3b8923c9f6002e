"""`jaxtap env`."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest
from command.shell import answer, complaint, text

GATES = ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes", "process")


def test_what_it_runs_on(tmp_path: Path) -> None:
    report = answer("env", cwd=tmp_path)
    assert report["jax"] == jax.__version__ and report["devices"][0]["platform"] == "cpu"
    assert report["variables"] == {"JAX_PLATFORMS": {"value": "cpu", "read": "before jax is imported"}}
    assert [c["option"] for c in report["changed"]] == ["jax_platforms"]
    assert report["cache"]["directory"] is None and tuple(report["cache"]["gates"]) == GATES
    assert "jax_num_cpu_devices" in report["only_early"]["before the first device is used"]


def test_as_text(tmp_path: Path) -> None:
    page = text("env", cwd=tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert f"jax       {jax.__version__}" in page
    assert "device    cpu:1" in page
    assert "cache     off: no directory is set" in page
    assert "XLA_FLAGS" in page and "before the first device is used" in page


@pytest.mark.parametrize(
    ("variables", "gate", "keeps_out"),
    [
        ({}, GATES[0], "what compiles in less than 1 s"),
        ({"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}, GATES[0], "nothing"),
        ({}, GATES[1], "nothing"),
        ({"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "10"}, GATES[1], "what is smaller than 10 bytes"),
        ({}, GATES[2], "nothing"),
    ],
)
def test_the_gates_of_the_cache(tmp_path: Path, variables: dict[str, str], gate: str, keeps_out: str) -> None:
    cache = answer("env", cwd=tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"), **variables)["cache"]
    assert cache["enabled"] and cache["directory"] == str(tmp_path / "cache")
    assert cache["gates"][gate]["keeps_out"] == keeps_out


def test_a_cache_that_is_switched_off(tmp_path: Path) -> None:
    variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    assert "cache     off: jax_enable_compilation_cache is False" in text("env", cwd=tmp_path, **variables)


def test_what_a_module_has_set(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("import jax\njax.config.update('jax_enable_x64', True)\n")
    changed = {c["option"]: c for c in answer("env", "--after", "settings", cwd=tmp_path)["changed"]}
    assert changed["jax_enable_x64"]["value"] == "True" and changed["jax_enable_x64"]["default"] == "False"
    assert changed["jax_enable_x64"]["can_be_set"] == "any time"


def test_no_device(tmp_path: Path) -> None:
    assert answer("env", cwd=tmp_path, JAX_PLATFORMS="nonsense")["devices"].startswith("none: ")


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    assert "no module named 'missing'" in complaint("env", "--after", "missing", cwd=tmp_path)
