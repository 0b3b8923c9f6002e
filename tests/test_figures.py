"""Figures in README come from a file in bench/results, and say on which day that was written.

A table of figures stands under a comment that names its file and date. Each of its rows is the beginning of a row of
that file. Elsewhere README gives no time and no ratio of times.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCE = re.compile(
    r"<!-- figures: (?P<file>bench/results/\S+\.md), (?P<day>\d{4}-\d\d-\d\d) -->\n+(?P<table>(?:\|.*\n)+)"
)
TABLES = list(SOURCE.finditer(README))
MEASURED = re.compile(r"\d ?(?:µs|us|ms|ns|s|seconds|times)\b|\b1/\d+|\btimes as (?:fast|slow)\b|\d ?%")


def rows(table: str) -> list[list[str]]:
    """The cells of each row of a Markdown table, without the line under its head."""
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines() if line]
    return [row for row in cells if set(row[0]) != {"-"}]


def test_there_are_figures() -> None:
    assert TABLES


@pytest.mark.parametrize("found", TABLES, ids=lambda found: found["file"])
def test_they_are_those_of_the_file(found: re.Match[str]) -> None:
    text = (ROOT / found["file"]).read_text(encoding="utf-8")
    assert f"date {found['day']}" in text
    measured = rows("\n".join(line for line in text.splitlines() if line.startswith("|")))
    for row in rows(found["table"]):
        assert row in [each[: len(row)] for each in measured]


@pytest.mark.parametrize("found", TABLES, ids=lambda found: found["file"])
def test_the_text_says_the_day(found: re.Match[str]) -> None:
    day = datetime.date.fromisoformat(found["day"])
    assert f"{day.day} {day:%B %Y}" in README


def test_there_are_no_others() -> None:
    words = SOURCE.sub("", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
    assert MEASURED.findall(words) == []
