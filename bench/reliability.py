"""Write the tables of docs/reliability.md from the results of `nox -s faults` and `nox -s soak`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "reliability.md"


def about(facts: dict[str, Any], date: str | None = None) -> str:
    """Where and when a result was made."""
    machine = f"{facts['system']}, {facts['cores']} cores, load {facts['load']:g}"
    return f"{date or facts['date']}, Python {facts['python']}, jax {facts['jax']}, {machine}"


def figures(row: dict[str, Any]) -> str:
    """The measurements of a trial, in words."""
    return "; ".join(f"{name}: {value:g}" for name, value in row.get("figures", {}).items())


def fault_lines(found: dict[str, Any]) -> Iterator[str]:
    """Rows of the table of faults."""
    for row in found["rows"]:
        if "skipped" in row:
            lost = f"not tried: {row['skipped']}"
        elif "failed" in row:
            lost = "**more than may be**, see the JSON file"
        else:
            lost = f"{row['lost']}{f' ({figures(row)})' if row['figures'] else ''}"
        yield f"| {row['what']} | {row['tried']:,} | {lost} |"


def faults(path: Path) -> list[str]:
    """The table of one run of the faults."""
    found = json.loads(path.read_text(encoding="utf-8"))
    days = sorted({row.get("date", found["facts"]["date"]) for row in found["rows"]})
    head = ["| what was tried | how often | what was lost |", "| --- | --- | --- |"]
    return [
        f"{about(found['facts'], ' to '.join(dict.fromkeys((days[0], days[-1]))))}:",
        "",
        *head,
        *fault_lines(found),
        "",
    ]


WORK = {
    "bounded": "one lens, a recorder that keeps the newest 100",
    "cleared": "one lens, a recorder that is cleared after each call",
    "written": "a lens and a `JSONLWriter`, opened anew for each call",
    "opened": "lenses of seven kinds, opened and closed",
}


def soak(path: Path) -> list[str]:
    """The table of one soak."""
    found = json.loads(path.read_text(encoding="utf-8"))
    lines = [
        "| what ran | events | blocks or lenses | held early, MiB | held late, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, phase in found["phases"].items():
        held = f"{phase['early_mib']:.1f} | {phase['late_mib']:.1f}"
        lines.append(f"| {WORK[name]} | {phase['events']:,} | {phase['blocks']:,} | {held} |")
    left = {kind: some for kind, some in found["left"].items() if some}
    flat = "Memory stayed flat" if found["flat"] else "**Memory grew**"
    return [
        f"{about(found['facts'])}:",
        "",
        *lines,
        "",
        f"{flat} (rule: {found['rule']}). Left of lenses, recorders, writers, threads, hooks and open files: "
        f"{f'**{left}**' if left else 'nothing'}.",
        "",
    ]


def text() -> str:
    """All tables."""
    lines = ["<!-- Written by bench/reliability.py from the JSON files beside it. -->", "", "## Faults", ""]
    for path in sorted(RESULTS.glob("faults-*.json")):
        lines += faults(path)
    lines += ["## Long runs", ""]
    for path in sorted(RESULTS.glob("soak-*.json")):
        lines += soak(path)
    return "\n".join(lines)


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
