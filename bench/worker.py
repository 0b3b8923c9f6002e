"""One process that measures one case with whichever jaxtap it imports.

`python worker.py CASE` prints a line of JSON that says what it runs on; then it takes one measurement for each line
on stdin, and prints the result as a line of JSON. bench/run.py lets workers of two libraries take turns.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import programs

import jaxtap as tap

Result = dict[str, float]

# A turn goes on for at least this long, so that a short program is run several times.
TURN_S = 0.2

# How long events are recorded to see what memory they take.
RECORDED_S = 3.0

# Every step crosses to the host on its own, also with a library that could gather steps.
UNBUFFERED = {"buffer": 1} if "buffer" in inspect.signature(tap.record).parameters else {}


def timed(run: Callable[..., Any], args: Any) -> float:
    """Seconds until a result is there, and all events with it."""
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    jax.effects_barrier()
    return time.perf_counter() - start


def clear(recorder: Any) -> None:
    """Forget what was recorded; jax-tap's recorder has a plain list."""
    recorder.clear() if hasattr(recorder, "clear") else recorder.events.clear()


def turn(bare: Callable[..., Any], lens: Callable[..., Any], args: Any, after: Callable[[], None]) -> Result:
    """Bare runs and runs under a lens, one after the other, for a while; medians of both."""
    bares, lenses = [], []
    gc.collect()
    end = time.perf_counter() + TURN_S
    while time.perf_counter() < end:
        bares.append(timed(bare, args))
        lenses.append(timed(lens, args))
        after()
    return {"bare_s": statistics.median(bares), "lens_s": statistics.median(lenses)}


# --- Cases: each yields a result for every turn ----------------------------------------------------------------


def steady(program: programs.Program, buffered: bool = False, **options: Any) -> Iterator[Result]:
    """Recording a compiled program."""
    f, args = program
    g, recorder = tap.record(f, **({} if buffered else UNBUFFERED), **options)
    bare, lens = jax.jit(f), jax.jit(g)
    timed(bare, args)
    while True:
        timed(lens, args)
        start = time.perf_counter()
        events = len(list(recorder.events))
        read_s = time.perf_counter() - start
        clear(recorder)
        yield turn(bare, lens, args, lambda: clear(recorder)) | {"events": events, "read_s": read_s}


def calling(program: programs.Program, on_step: Callable[[Any], None], events: int) -> Iterator[Result]:
    """Calling a function for every event, without a recorder."""
    f, args = program
    bare, lens = jax.jit(f), jax.jit(tap.verbose(f, on_step=on_step, **UNBUFFERED))
    timed(bare, args), timed(lens, args)
    while True:
        yield turn(bare, lens, args, lambda: None) | {"events": events}


def watching(program: programs.Program, *taps: Any, steps: int) -> Iterator[Result]:
    """A tripwire that stays silent."""
    f, args = program
    bare, lens = jax.jit(f), jax.jit(tap.verbose(f, taps=taps, **UNBUFFERED))
    timed(bare, args), timed(lens, args)
    while True:
        yield turn(bare, lens, args, lambda: None) | {"events": steps}


def debug_nans(program: programs.Program, steps: int) -> Iterator[Result]:
    """JAX's own check, which looks at what a compiled function returns."""
    f, args = program
    bare, inside = jax.jit(f), jax.jit(f)

    def checked(*args: Any) -> Any:
        with jax.debug_nans(True):
            return inside(*args)

    timed(bare, args), timed(checked, args)
    while True:
        yield turn(bare, checked, args, lambda: None) | {"events": steps}


def writing(program: programs.Program, events: int) -> Iterator[Result]:
    """Writing every event to a file."""
    with tempfile.TemporaryDirectory() as folder, tap.JSONLWriter(Path(folder, "events.jsonl")) as writer:
        yield from calling(program, writer, events)


def first_call(program: programs.Program, with_lens: bool, **options: Any) -> Iterator[Result]:
    """The first call of a program: trace, lower and compile it, and run it once."""
    f, args = program
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(3)))
    if not with_lens:
        yield {"first_s": timed(jax.jit(f), args)}
        return
    g, recorder = tap.record(f, **UNBUFFERED, **options)
    seconds = timed(jax.jit(g), args)
    yield {"first_s": seconds, "events": len(list(recorder.events))}


def resident_bytes() -> int:
    """Memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> Iterator[Result]:
    """Memory that scalar events take in a recorder: as they came, and after someone has read them."""
    f, args = programs.counted_loop()
    g, recorder = tap.record(f, select=lambda leaves: leaves[0], **UNBUFFERED)
    lens = jax.jit(g)
    # Memory that a first long run had freed would be taken again unseen.
    timed(lens, (*args, 10))
    len(list(recorder.events))
    gc.collect()
    before = resident_bytes()
    end = time.perf_counter() + RECORDED_S
    while time.perf_counter() < end:
        timed(lens, (*args, 10_000))
    gc.collect()
    kept = resident_bytes() - before
    events = len(list(recorder.events))
    gc.collect()
    yield {"kept_bytes": kept / events, "read_bytes": (resident_bytes() - before) / events, "events": events}


def table() -> Iterator[Result]:
    """A table of many scalar events, and the memory that they take."""
    f, args = programs.counted_loop()
    g, recorder = tap.record(f, select=lambda leaves: leaves[0])
    lens = jax.jit(g)
    timed(lens, (*args, 10))
    recorder.df()
    clear(recorder)
    gc.collect()
    before = resident_bytes()
    for _ in range(10):
        timed(lens, (*args, 1_000_000))
    events = len(recorder.events)
    gc.collect()
    kept = resident_bytes() - before
    start = time.perf_counter()
    rows = len(recorder.df())
    assert rows == events == 10_000_000
    yield {"df_s": time.perf_counter() - start, "kept_bytes": kept, "events": events}


def written(program: programs.Program, events: int) -> Iterator[Result]:
    """Recording a program to a file, until the last event is in the file."""
    f, args = program
    with tempfile.TemporaryDirectory() as folder, tap.JSONLWriter(Path(folder, "events.jsonl")) as writer:
        lens = jax.jit(tap.verbose(f, on_step=writer))
        timed(lens, args)
        while True:
            until = writer.written + events
            start = time.perf_counter()
            timed(lens, args)
            while writer.written < until:
                time.sleep(0.001)
            yield {"written_s": time.perf_counter() - start, "events": events}


CASES: dict[str, Callable[[], Iterator[Result]]] = {
    "scan": lambda: steady(programs.tiny_scan(5_000)),
    "scan-vmap-8": lambda: steady(programs.tiny_scan(1_000, lanes=8)),
    "scan-vmap-64": lambda: steady(programs.tiny_scan(200, lanes=64)),
    "gathered-scan": lambda: steady(programs.tiny_scan(5_000), buffered=True),
    "gathered-vmap-64": lambda: steady(programs.tiny_scan(200, lanes=64), buffered=True),
    "gathered-vmap-64-long": lambda: steady(programs.tiny_scan(5_000, lanes=64), buffered=True),
    "trajectories": lambda: steady(programs.trajectories(2_000), buffered=True),
    "trajectories-one": lambda: steady(programs.trajectories(2_000), buffered=True, select=programs.first_number),
    "warmup": lambda: steady(programs.warmup(1_000), buffered=True, max_depth=0),
    **{f"body-{size}": lambda size=size: steady(programs.bodies(size), buffered=True) for size in (1, 4, 16, 64, 256)},
    **{f"body-{size}-alone": lambda size=size: steady(programs.bodies(size)) for size in (1, 4, 16, 64, 256)},
    "scan-on-step": lambda: calling(programs.tiny_scan(5_000), lambda event: None, 5_000),
    "scan-jsonl": lambda: writing(programs.tiny_scan(2_000), 2_000),
    "nested-all": lambda: steady(programs.nested_loops(100)),
    "nested-outer": lambda: steady(programs.nested_loops(100), max_depth=0),
    "watch-sin": lambda: watching(programs.sines(20_000), tap.watch_nan("sin"), steps=20_000),
    "watch-state": lambda: watching(programs.matrix_steps(1_000), tap.watch_nan(), steps=1_000),
    "debug-nans": lambda: debug_nans(programs.matrix_steps(1_000), 1_000),
    "memory": memory,
    "table": table,
    "jsonl": lambda: written(programs.tiny_scan(50_000), 50_000),
}

FIRST_CALLS: dict[str, tuple[Callable[[], programs.Program], dict[str, Any]]] = {
    "first-tiny": (lambda: programs.tiny_scan(100), {}),
    "first-nested": (lambda: programs.nested_loops(5), {}),
    "first-network": (programs.unrolled_network, {}),
    "first-warmup": (programs.window_adaptation, {}),
    "first-warmup-outer": (programs.window_adaptation, {"max_depth": 0}),
    "first-nuts": (programs.mapped_nuts, {}),
    "first-nuts-outer": (programs.mapped_nuts, {"max_depth": 0}),
}


def measurements(name: str) -> Iterator[Result]:
    """The results of a case; the name of a first call ends with how it is made."""
    if name in CASES:
        return CASES[name]()
    name, _, way = name.rpartition("-")
    program, options = FIRST_CALLS[name]
    return first_call(program(), way == "lens", **options)


def main() -> None:
    """Answer each line on stdin with a measurement."""
    case = measurements(sys.argv[1])
    print(json.dumps({"jaxtap": tap.__version__, "jax": jax.__version__, "file": tap.__file__}), flush=True)
    for _ in sys.stdin:
        result = next(case)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
