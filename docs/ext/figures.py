"""Figures that pages speak of, read from the files in bench/results."""

import json
import re
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def substitutions() -> dict[str, str]:
    """What a page writes as `{{ name }}`."""
    (programs,) = {json.loads(path.read_text())["programs"] for path in RESULTS.glob("fidelity-jax*.json")}
    cells = re.findall(r"(\d+) of (\d+)", (RESULTS / "fidelity.md").read_text())
    return {
        "fidelity_programs": f"{programs:,}",
        "fidelity_comparisons": f"{sum(int(of) for _, of in cells):,}",
        "fidelity_moved": str(sum(int(moved) for moved, _ in cells)),
    }
