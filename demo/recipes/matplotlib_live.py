"""A curve that grows while the program runs, with matplotlib.

Windows belong to the main thread, so the program runs in another one, and this one draws. Without a window, as on a
server, each picture replaces the file.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from fitting import fit

import jaxtap as tap

PICTURE = Path(__file__).parents[1] / "output" / "matplotlib_live.png"
SECONDS = 0.2


class Curve:
    """A picture of one number by step."""

    def __init__(self, name: str, picture: Path) -> None:
        self.picture, self.count = picture, 0
        self.figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
        self.in_window = self.figure.canvas.required_interactive_framework is not None
        (self.line,) = axes.semilogy([], [])
        axes.set(xlabel="step", ylabel=name)
        picture.parent.mkdir(parents=True, exist_ok=True)

    def draw(self, rec: tap.FlightRecorder) -> None:
        """Show all events so far, in the window or in the file, and leave it a while."""
        events = list(rec.events)
        self.line.set_data([event.step for event in events], [float(event.value) for event in events])
        self.line.axes.relim()
        self.line.axes.autoscale_view()
        self.count += 1
        if self.in_window:
            plt.pause(SECONDS)
        else:
            self.figure.savefig(self.picture, dpi=100)
            time.sleep(SECONDS)


def watched(program: Callable[[], Any], curve: Curve) -> tap.FlightRecorder:
    """Run a program in a thread, and draw what it tells until it is done."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool, tap.record(select="loss", threads="all") as rec:
        running = pool.submit(program)
        while not running.done():
            curve.draw(rec)
        running.result()
    curve.draw(rec)
    return rec


def main(picture: Path = PICTURE, steps: int = 20_000) -> tuple[Curve, tap.FlightRecorder]:
    curve = Curve("loss", picture)
    return curve, watched(lambda: fit(steps)["loss"].block_until_ready(), curve)


if __name__ == "__main__":
    curve, _ = main()
    print(f"{curve.count} pictures, the last in {curve.picture}")
