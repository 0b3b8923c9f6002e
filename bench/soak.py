"""Run for long: memory stays flat, and nothing is left of lenses that are gone.

Run it with an interpreter that has jaxtap installed, or as `nox -s soak`. Exit status 1 if something grew or is left.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import primitives
from run import HERE, facts

import jaxtap as tap

# Events of one call of the program.
STEPS = 20_000
# Of each phase, memory is looked at this often; the first tenth is for caches to fill.
SAMPLES = 200
WARM_UP = 0.1
# How much more the process may hold in the last fifth of a phase than in the first fifth after the warm-up, in medians.
# It does not grow with the length of the run: 10^8 events at one byte lost each would be 95 MiB.
MAY_GROW_MIB = 8.0
HELD = ("FlightRecorder", "JSONLWriter", "Lens", "LineFile", "Listener", "Opening", "Recording")


def resident_mib() -> float:
    """What the process holds of the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def step(c: Any, x: Any) -> tuple[Any, None]:
    return c * 0.999 + x, None


@jax.jit
def long(v: Any) -> Any:
    return jax.lax.scan(step, v, jnp.arange(float(STEPS)))[0]


@jax.jit
def short(v: Any) -> Any:
    return jax.lax.scan(step, v, jnp.arange(3.0))[0]


# --- Phases: each gives the events of one more block of work, for ever ------------------------------------------------


def bounded() -> Iterator[int]:
    """One lens with a bounded recorder, held for the whole phase."""
    with tap.record(capacity=100) as recorder:
        while True:
            long(1.0).block_until_ready()
            jax.effects_barrier()
            yield STEPS
            assert len(recorder.events) == 100


def cleared() -> Iterator[int]:
    """One lens with a recorder that keeps all, and is told to forget now and then."""
    with tap.record() as recorder:
        while True:
            long(1.0).block_until_ready()
            jax.effects_barrier()
            assert len(recorder.events) == STEPS
            recorder.clear()
            yield STEPS


def written() -> Iterator[int]:
    """A lens whose events go to a file, which is opened anew for each block."""
    with tempfile.TemporaryDirectory() as folder:
        while True:
            with tap.JSONLWriter(Path(folder, "events.jsonl")) as writer, tap.record(on_step=writer, capacity=1):
                long(1.0).block_until_ready()
            assert (writer.written, writer.dropped) == (STEPS, 0)
            yield STEPS


def opened(count: int) -> Iterator[int]:
    """Lenses of several kinds, each opened over three events and closed."""
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {},
        lambda: {"select": "c"},
        lambda: {"capacity": 2},
        lambda: {"on_step": lambda event: None},
        lambda: {"trace": True},
        lambda: {"threads": "all"},
        lambda: {"taps": [tap.watch_nan()]},
    ]
    for i in range(count):
        with tap.record(**kinds[i % len(kinds)]()) as recorder:
            short(1.0).block_until_ready()
        if i % len(kinds) == 0:
            assert len(recorder.events) == 3
        yield 3


# --- Memory -----------------------------------------------------------------------------------------------------------


def watched(work: Iterator[int], enough: Callable[[int, int], float]) -> dict[str, Any]:
    """Run a phase until it has done enough, and say what the process held.

    Args:
      work: gives the events of one more block.
      enough: which share of the phase is done, of events and blocks so far.
    """
    events = blocks = 0
    curve: list[tuple[float, float]] = []
    start = time.perf_counter()
    while (share := enough(events, blocks)) < 1:
        if share >= len(curve) / SAMPLES:
            curve.append((round(share, 4), round(resident_mib(), 2)))
        events += next(work)
        blocks += 1
    work.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    gc.collect()
    curve.append((1.0, round(resident_mib(), 2)))
    early, late = part(curve, WARM_UP, 0.3), part(curve, 0.8, 1.0)
    return {
        "events": events,
        "blocks": blocks,
        "seconds": round(time.perf_counter() - start, 1),
        "early_mib": early,
        "late_mib": late,
        "grew_mib": round(late - early, 2),
        "resident_mib": curve,
    }


def part(curve: list[tuple[float, float]], start: float, end: float) -> float:
    """Median of what was held between two shares of a phase."""
    return statistics.median(held for share, held in curve if start <= share <= end)


# --- What is left -----------------------------------------------------------------------------------------------------


def left(files: int) -> dict[str, Any]:
    """What is there of lenses that are gone, but for the one thread that runs users' functions."""
    gc.collect()
    kinds = collections.Counter(
        type(each).__name__ for each in gc.get_objects() if str(type(each).__module__).startswith("jaxtap.")
    )
    return {
        "objects": {kind: kinds[kind] for kind in HELD if kinds[kind]},
        "threads": sorted(t.name for t in threading.enumerate() if t is not threading.main_thread())[1:],
        "hooks": [name for name in ("scan_p", "while_p", "cond_p") if "bind" in vars(getattr(primitives, name))],
        "open_files": len(os.listdir("/proc/self/fd")) - files,
    }


def main() -> int:
    """Run the phases, and write what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=lambda text: int(float(text)), default=10**8, help="of all phases; 10^8")
    parser.add_argument("--lenses", type=lambda text: int(float(text)), default=10**4, help="opened and closed; 10^4")
    parser.add_argument("--out", type=Path, help=f"folder for the result; {HERE / 'results'} for a run to keep")
    options = parser.parse_args()
    # That a bounded recorder drops events is what it is for.
    warnings.filterwarnings("ignore", "jaxtap: (the recorder is full|.* events were dropped)", tap.JaxtapWarning)
    long(1.0), short(1.0)
    files = len(os.listdir("/proc/self/fd"))
    third = options.events / 3
    phases: dict[str, Any] = {}
    for name, work in {"bounded": bounded(), "cleared": cleared(), "written": written()}.items():
        phases[name] = watched(work, lambda events, _: events / third)
        print(name, {key: found for key, found in phases[name].items() if key != "resident_mib"}, flush=True)
    phases["opened"] = watched(opened(options.lenses), lambda _, blocks: blocks / options.lenses)
    print("opened", {key: found for key, found in phases["opened"].items() if key != "resident_mib"}, flush=True)
    found = left(files)
    flat = all(phase["grew_mib"] <= MAY_GROW_MIB for phase in phases.values())
    rule = f"median of the last fifth of a phase at most {MAY_GROW_MIB:g} MiB above that of its second and third tenth"
    result = {"facts": facts(), "rule": rule, "flat": flat, "left": found, "phases": phases}
    print("left:", found, "flat:", flat)
    if options.out is not None:
        stem = f"soak-py{sys.version_info.major}.{sys.version_info.minor}-jax{version('jax')}.json"
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / stem).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if flat and not any(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
