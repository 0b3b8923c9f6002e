"""Try every fault many times, at random moments, and write down what was lost.

    PYTHONPATH=tests python -m faults [--only NAME ...] [--most N] [--seed N] [--out FOLDER]

Exit status 1 if more was lost than may be.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from faults.trials import FAULTS, NotPossible

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from run import facts  # noqa: E402 - found only now


def tried(name: str, most: int, seed: int) -> dict[str, Any]:
    """What came of a fault."""
    fault, start = FAULTS[name], time.perf_counter()
    made = {key: value for key, value in facts().items() if key in ("date", "commit")}
    row: dict[str, Any] = {"name": name, "what": fault.what, "asked": min(fault.times, most)} | made
    try:
        outcome = fault.trial(row["asked"], random.Random(f"{name}{seed}"))
        row |= {"tried": outcome.tried, "lost": outcome.lost, "figures": outcome.figures}
    except NotPossible as reason:
        row |= {"tried": 0, "skipped": str(reason)}
    except Exception as error:  # noqa: BLE001 - the other faults are tried all the same
        row |= {"tried": 0, "failed": f"{type(error).__name__}: {error}"}
    row["seconds"] = round(time.perf_counter() - start, 1)
    print(json.dumps(row), flush=True)
    return row


def write(folder: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write the rows, and keep those of other faults that are there from before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"faults-py{sys.version_info.major}.{sys.version_info.minor}-jax{version('jax')}.json"
    if path.exists():
        before = json.loads(path.read_text())
        known = {row["name"]: {"date": before["facts"]["date"]} | row for row in before["rows"]}
        rows = list((known | {row["name"]: row for row in rows}).values())
    rows.sort(key=lambda row: list(FAULTS).index(row["name"]))
    path.write_text(json.dumps({"facts": about, "rows": rows}, indent=1) + "\n")


def main() -> int:
    """Try them, two at a time on two cores, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="NAME", help=", ".join(FAULTS)
    )
    parser.add_argument("--most", type=int, default=1000, help="try none of them more often than this")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="how many faults are tried at a time")
    parser.add_argument("--out", type=Path, help=f"folder for the result; {ROOT / 'bench/results'} for a run to keep")
    options = parser.parse_args()
    about = facts() | {"seed": options.seed}
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        rows = list(pool.map(lambda name: tried(name, options.most, options.seed), options.only))
    if options.out is not None:
        write(options.out, about, rows)
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
