"""The tables of docs/reliability.md say what the results in bench/results say, and those are good."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"


def tool(path: str) -> Any:
    """A script of the repository, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_results() -> None:
    made = tool("bench/reliability.py")
    assert made.TABLE.read_text(encoding="utf-8") == made.text(), "run python bench/reliability.py"
    assert "bench/results/reliability.md" in (ROOT / "docs/reliability.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("faults-*.json")), ids=lambda path: path.stem)
def test_no_more_was_lost_than_may_be(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [row["name"] for row in found["rows"] if "failed" in row] == []
    assert sum(row["tried"] for row in found["rows"]) > 100


@pytest.mark.parametrize("path", sorted(RESULTS.glob("soak-*.json")), ids=lambda path: path.stem)
def test_memory_stayed_flat_and_nothing_was_left(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["flat"] and not any(found["left"].values())


def test_links_changelog_and_citation() -> None:
    check = tool("release/check.py")
    assert [*check.link_problems(), *check.changelog_problems(), *check.citation_problems()] == []
