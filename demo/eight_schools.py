"""Hold jaxtap's lens over BlackJAX's warm-up and NUTS on the eight schools, and see what goes wrong in it."""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from schools import diagnosis, program
from telling import heading

import jaxtap as tap

HERE = Path(__file__).parent
PLOT = HERE / "output" / "eight_schools.png"
NUM_SAMPLES = 1000

# The addresses of the program's two outer loops, as `rec.report()` lists them.
WARMUP, SAMPLING = "scan[0]", "scan[1]"


class Live:
    """Prints a line every so many steps, while the program runs.

    Args:
      start: the time, in seconds since the epoch, from which lines count.
      every: steps between two lines, for each loop by its address.
    """

    def __init__(self, start: float, every: dict[str, int]) -> None:
        self.start, self.every = start, every
        self.carry: dict[str, Any] = {}
        self.divergences = dict.fromkeys(every, 0)
        self.printed: list[tuple[str, float]] = []

    def on_step(self, event: tap.TapEvent) -> None:
        """Keep the loop's state after a step; what the step returns comes next."""
        self.carry = {diagnosis.short(name): value for name, value in event.value.items()}

    def on_ys(self, event: tap.TapEvent) -> None:
        """Count divergences, and print a line if it is time for one."""
        ys = {diagnosis.short(name): value for name, value in event.value.items()}
        self.divergences[event.path] += bool(ys["is_divergent"])
        if (event.step + 1) % self.every[event.path] == 0:
            now = time.time()
            self.printed.append((event.path, now))
            print(self._line(event, now - self.start, ys), flush=True)

    def _line(self, event: tap.TapEvent, seconds: float, ys: dict[str, Any]) -> str:
        phase = "warm-up" if event.path == WARMUP else "sampling"
        step_size = f"{self.carry['step_size']:9.4f}" if "step_size" in self.carry else "    fixed"
        count = f"{event.step + 1:{len(str(event.total))}d}/{event.total}"
        return (
            f"{seconds:8.3f} s  {phase:8} {count}  step size {step_size}  "
            f"log tau {self.carry['log_tau']:5.2f}  divergences so far {self.divergences[event.path]:3d}"
        )

    def report(self, rec: tap.FlightRecorder) -> str:
        """How many of the warm-up's lines came before its last step had run."""
        last = max(event.time for event in rec.events if event.path == WARMUP)
        lines = [now for path, now in self.printed if path == WARMUP]
        early = sum(now < last for now in lines)
        return f"{early} of the warm-up's {len(lines)} lines were printed before its last step had reached the host."


def differing(bare: Any, seen: Any) -> tuple[list[str], int]:
    """The arrays of a result that are not the same in each bit, and how many arrays there are."""
    pairs = list(zip(jax.tree_util.tree_leaves_with_path(bare), jax.tree.leaves(seen), strict=True))
    names = [
        jax.tree_util.keystr(path)
        for (path, a), b in pairs
        if (a.shape, a.dtype) != (b.shape, b.dtype) or np.asarray(a).tobytes() != np.asarray(b).tobytes()
    ]
    return names, len(pairs)


def say_whether_same(bare: Any, seen: Any) -> None:
    names, count = differing(bare, seen)
    if names:
        print(f"NOT the same: {len(names)} of {count} arrays differ between the bare run and the run under the lens,")
        print(f"for example {', '.join(names[:2])}.")
    else:
        print(f"The same: all {count} arrays of the result are equal in every bit, with and without the lens.")


def say_what_was_seen(report: tap.Report) -> None:
    print(f"{report.delivered} events delivered of {report.expected} expected, {report.dropped} dropped;")
    seen = [loop for loop in report.loops if loop.selected]
    print(f"{len(report.loops)} loops met, {len(report.loops) - len(seen)} of them left out by max_depth=0:")
    for loop in seen:
        print(f"  {loop.path}  {loop.delivered} events  {loop.source}")
    for note in report.notes:
        print(textwrap.fill(note, 98, initial_indent="  ! ", subsequent_indent="    "))


def head(rec: tap.FlightRecorder) -> str:
    """The first events as a table; what is empty there, and theta, which is wide, is left out. Time from the first."""
    first = rec.df().head(6).dropna(axis="columns", how="all").drop(columns="carry[0].position['theta']")
    first["time"] = (first["time"] - first["time"].iloc[0]).round(6)
    return first.to_string(line_width=100, float_format="%.4g")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampler (default: 0)")
    parser.add_argument("--num-warmup", type=int, default=1000, help="warm-up steps (default: 1000, as BlackJAX's)")
    parser.add_argument("--no-plot", action="store_true", help="write no picture")
    options = parser.parse_args(arguments)
    if options.num_warmup < 20:
        parser.error("--num-warmup must be at least 20: with fewer, BlackJAX adapts in a single window")
    estimates, errors = program.load(HERE / "eight_schools.csv")

    def run() -> Any:
        return jax.block_until_ready(program.run(options.seed, estimates, errors, options.num_warmup, NUM_SAMPLES))

    heading(f"1. The program alone: JAX {jax.__version__}, seed {options.seed}, {options.num_warmup} warm-up steps")
    start = time.time()
    bare = run()
    print(f"took {time.time() - start:.1f} s; nothing was printed meanwhile")

    heading("2. The same program under the lens, live")
    start = time.time()
    live = Live(start, {WARMUP: max(options.num_warmup // 20, 1), SAMPLING: NUM_SAMPLES // 5})
    with tap.record(
        select=["step_size", "log_step_size_avg", "position['log_tau']", "position['theta']"],
        select_ys=["is_divergent", "acceptance_rate"],
        on_step=live.on_step,
        on_ys=live.on_ys,
        max_depth=0,
    ) as rec:
        seen = run()
    print(f"took {time.time() - start:.1f} s")
    print(live.report(rec))

    heading("3. The recording: the head of rec.df()")
    print(head(rec))

    heading("4. What it found wrong")
    warmup, sampling = diagnosis.by_step(rec, WARMUP), diagnosis.by_step(rec, SAMPLING)
    print(diagnosis.text(warmup, sampling))

    heading("5. Is the result the same, and was everything seen?")
    say_whether_same(bare, seen)
    say_what_was_seen(rec.report())

    if not options.no_plot:
        from schools import plot  # noqa: PLC0415 - pyplot takes a while

        plot.draw(warmup, sampling, PLOT)
        print(f"\nPicture: {PLOT.relative_to(Path.cwd()) if PLOT.is_relative_to(Path.cwd()) else PLOT}")

    _, draws_begin = diagnosis.standstill(sampling)
    return {
        "paths": [loop.path for loop in rec.report().loops if loop.selected],
        "steps": {WARMUP: len(warmup), SAMPLING: len(sampling)},
        "differing": differing(bare, seen)[0],
        "divergent": int(sampling["is_divergent"].sum()),
        "divergent in the neck": int((sampling["is_divergent"] & diagnosis.low_tau(sampling)).sum()),
        "stands still from": draws_begin,
    }


if __name__ == "__main__":
    main()
