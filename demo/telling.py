"""How the demos tell what they found: headings, paragraphs, pictures."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

OUTPUT = Path(__file__).parent / "output"
WIDTH = 98

# Colours that colour-blind readers can tell apart: the usual, the bug, the fix.
USUAL, BUG, FIX = "#4477aa", "#cc3311", "#228833"


def heading(text: str) -> None:
    """Begin a part of the demo."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def say(text: str) -> None:
    """Print a paragraph, wrapped."""
    print(textwrap.fill(text, WIDTH), flush=True)


def panels(*titles: str) -> tuple[Figure, list[Any]]:
    """A figure with one panel for each title, one below the other over the same steps."""
    figure = Figure(figsize=(8, 1.2 + 2.6 * len(titles)), layout="constrained")
    axes = figure.subplots(len(titles), sharex=True, squeeze=False)[:, 0]
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, loc="left")
    return figure, list(axes)


def save(figure: Figure, path: Path) -> None:
    """Write a picture, and say where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    print(f"\nPicture: {shown}", flush=True)
