"""Count how often a tap of each kind moves a bit of the result, over many random programs.

    PYTHONPATH=tests python -m fidelity [programs] [--taps N] [--first-seed N] [--narrow]

Writes bench/results/fidelity-jax<version>.json, and the table of all of those to bench/results/fidelity.md. A program
whose result moves is kept there as a script that makes `f` and `args`; `--narrow` makes it as small as it can be first.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from fidelity.conditions import stated
from fidelity.narrow import narrowed
from fidelity.plans import SIZES, Plan, has_marks, plans
from fidelity.programs import TAPS, certificates, kinds_for, source
from hypothesis import HealthCheck, Phase, given, seed, settings

import jaxtap as tap

RESULTS = Path(__file__).parent.parent.parent / "bench" / "results"
# Upper ends of the columns of the table.
SIZE_CLASSES = tuple(sorted(map(max, SIZES)))
# What came of a program: a certificate, or what it raised.
Outcome = tap.Certificate | Exception
# Programs that are drawn and forgotten together. Hypothesis varies what it has drawn before: small batches differ more.
BATCH = 25


@dataclasses.dataclass
class Cell:
    """What came of the programs of one size class under a tap of one kind.

    Attributes:
      programs: how many were compared.
      events: how many events the lens received.
      moved: how many results moved.
      unstated: how many of those meet no stated condition.
    """

    programs: int = 0
    events: int = 0
    moved: int = 0
    unstated: int = 0


def drawn(number: int) -> list[Plan]:
    """A batch of programs, the same for the same number."""
    found: list[Plan] = []

    @seed(number)
    @settings(max_examples=BATCH, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(plans())
    def keep(plan: Plan) -> None:
        found.append(plan)

    keep()
    return found


def programs(first_seed: int, count: int) -> Iterator[Plan]:
    """`count` programs, no two with the same loop body."""
    seen: set[Any] = set()
    for number in itertools.count(first_seed):
        for plan in drawn(number):
            if plan.body not in seen:
                seen.add(plan.body)
                yield plan
                if len(seen) == count:
                    return
        # Programs are not run again, and JAX would keep them all.
        jax.clear_caches()


def outcomes(plan: Plan, kinds: list[str]) -> dict[str, Outcome]:
    """What comes of a program under a tap of each kind; where it raises, each kind is tried alone."""
    try:
        return dict(certificates(plan, kinds))
    except Exception as error:  # noqa: BLE001 - whatever a lens makes a program raise is a finding
        return {kind: outcomes(plan, [kind])[kind] for kind in kinds} if len(kinds) > 1 else {kinds[0]: error}


def is_good(outcome: Outcome) -> bool:
    return isinstance(outcome, tap.Certificate) and outcome.identical and outcome.repeatable


def mismatch(plan: Plan, kind: str, outcome: Outcome, narrow: bool) -> dict[str, Any]:
    """What is kept of a program whose result moves."""

    def is_alike(smaller: Plan) -> bool:
        found = outcomes(smaller, [kind])[kind]
        return type(found) is type(outcome) and not is_good(found)

    if narrow:
        plan = narrowed(plan, is_alike)
        outcome = outcomes(plan, [kind])[kind]
    condition = stated(plan)
    print(f"{kind}: {outcome!r}, {condition or 'under no stated condition'}\n  {plan!r}", flush=True)
    found = {"tap": kind, "found": repr(outcome), "condition": condition}
    return found | {"plan": repr(plan), "source": source(plan)}


def compare(
    count: int, taps: int, first_seed: int, narrow: bool
) -> tuple[dict[tuple[str, int], Cell], list[dict[str, Any]]]:
    """Run the programs; returns the cells of the table, and the programs whose results moved."""
    cells: dict[tuple[str, int], Cell] = collections.defaultdict(Cell)
    mismatches: list[dict[str, Any]] = []
    for n, plan in enumerate(programs(first_seed, count), 1):
        kinds = kinds_for(plan)
        kinds = random.Random(n).sample(kinds, min(taps, len(kinds)))
        if has_marks(plan) and "marks" not in kinds:
            kinds.append("marks")
        size = next(size for size in SIZE_CLASSES if plan.size <= size)
        found = outcomes(plan, kinds)
        for kind in kinds:
            cell = cells[kind, size]
            cell.programs += 1
            cell.events += getattr(found[kind], "events", 0)
            if not is_good(found[kind]):
                cell.moved += 1
                cell.unstated += not stated(plan)
                mismatches.append(mismatch(plan, kind, found[kind], narrow))
        if n % 100 == 0 or n == count:
            print(f"{n} programs, {len(mismatches)} moved", flush=True)
    return cells, mismatches


def main(arguments: list[str]) -> int:
    """Compare, print the table and write it down; returns 1 if any result moved."""
    parser = argparse.ArgumentParser(prog="python -m fidelity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("programs", type=int, nargs="?", default=5000)
    parser.add_argument("--taps", type=int, default=3, help="kinds of taps that each program is compared under")
    parser.add_argument("--first-seed", type=int, default=0, help="draw other programs")
    parser.add_argument("--narrow", action="store_true", help="make programs whose results move smaller")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", tap.JaxtapWarning)
    cells, mismatches = compare(options.programs, options.taps, options.first_seed, options.narrow)
    out = {
        "jax": jax.__version__,
        "python": sys.version.split()[0],
        "backend": jax.default_backend(),
        "programs": options.programs,
        "first seed": options.first_seed,
        "rows": [
            {"tap": kind, "up to": size, **dataclasses.asdict(cells[kind, size])}
            for kind in TAPS
            for size in SIZE_CLASSES
        ],
        "mismatches": mismatches,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"fidelity-jax{jax.__version__}.json").write_text(json.dumps(out, indent=1) + "\n")
    print(write_table())
    return int(bool(mismatches))


def write_table() -> str:
    """One line for each JAX version and kind of tap, one column for each class of state sizes."""
    least = [1, *(size + 1 for size in SIZE_CLASSES[:-1])]
    heads = [f"{a} to {b}" if a < b else str(a) for a, b in zip(least, SIZE_CLASSES, strict=True)]
    heads.append("under no stated condition")
    lines = [f"| jax | tap | {' | '.join(heads)} | events |", "| --- " * (len(heads) + 3) + "|"]
    for file in sorted(RESULTS.glob("fidelity-jax*.json")):
        found = json.loads(file.read_text())
        for kind in dict.fromkeys(row["tap"] for row in found["rows"]):
            rows = [row for row in found["rows"] if row["tap"] == kind]
            row_cells = [f"{row['moved']} of {row['programs']}" for row in rows]
            row_cells.append(str(sum(row["unstated"] for row in rows)))
            events = f"{sum(row['events'] for row in rows):,}"
            lines.append(f"| {found['jax']} | {kind} | {' | '.join(row_cells)} | {events} |")
    text = "Results that moved, by elements of a leaf of the state:\n\n" + "\n".join(lines) + "\n"
    (RESULTS / "fidelity.md").write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
