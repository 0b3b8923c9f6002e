"""What a step costs under a lens, over what the step itself costs, as a picture.

    python bench/plot.py bench/results/gathered/py3.13-jax0.12.0.1.json

Reads what `bench/run.py --only body-1 body-1-alone ...` wrote, and writes a PNG of the same name beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SERIES = (
    ("", "jaxtap", "jaxtap, gathered"),
    ("-alone", "jaxtap", "jaxtap, one by one"),
    ("-alone", "jax-tap 0.3.1", "jax-tap 0.3.1"),
)


def points(rows: list[dict[str, Any]], way: str, library: str) -> list[tuple[float, float]]:
    """Cost of the body and of the lens, in microseconds a step."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        case = row["case"]
        is_alone = case.endswith("-alone")
        if case.startswith("body-") and is_alone == bool(way) and library in row:
            what = "body" if "itself" in row["title"] else "lens"
            found.setdefault(case, {})[what] = row[library]["median"]
    return sorted((each["body"], each["lens"]) for each in found.values())


def main(path: Path) -> None:
    """Draw, and write the picture."""
    rows = json.loads(path.read_text())["rows"]
    figure, axes = plt.subplots(figsize=(8, 5), dpi=100)
    for way, library, label in SERIES:
        found = points(rows, way, library)
        if found:
            axes.plot(*zip(*found, strict=True), marker="o", label=label)
            axes.annotate(f"{found[0][1]:.3g} µs", found[0], textcoords="offset points", xytext=(4, 7), fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="the step itself, µs", ylabel="what the lens adds, µs a step")
    body = [point[0] for point in points(rows, "", "jaxtap")]
    axes.plot(body, body, color="grey", linestyle=":", label="as much as the step itself")
    axes.set_title("Every step of a scan over 64 floats, recorded")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
