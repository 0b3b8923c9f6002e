"""What a warmup costs under `jaxtap_blackjax.watch_warmup`, next to the same compiled warmup without it.

    python bench/warmup.py [--turns 5] [--steps 1000] [--dimensions 100] [--out bench/results]

Window adaptation of NUTS on two posteriors: a Gaussian whose scales go from 0.1 to 1, whose steps take microseconds,
and a logistic regression on 1,000 observations; each once returning what every step has told (`info`), and once
dropping it. Bare and watched take turns in one process, both compiled before; a turn is one warmup, until its result
and all rows have arrived. Figures are medians over the turns, and the ratio is the median of the ratios within a turn,
by the clock and of processor time, of all threads: the latter depends less on what else the machine does. It needs
blackjax.

`--alone NAME` measures `jaxtap.record` of the step size instead, which any library imported as `jaxtap` has, under that
name: run it with an interpreter that has jax-tap for that one's row.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp

AIM = 1.05
Context = Callable[[], contextlib.AbstractContextManager[Any]]


def gaussian(dimensions: int) -> Callable[[Any], Any]:
    """A density that costs next to nothing."""
    scales = jnp.linspace(0.1, 1.0, dimensions)
    return lambda x: -0.5 * jnp.sum(jnp.square(x / scales))


def regression(dimensions: int) -> Callable[[Any], Any]:
    """A density that costs two matrix-vector products."""
    design = jax.random.normal(jax.random.key(1), (1000, dimensions))
    truth = jax.random.normal(jax.random.key(2), (dimensions,)) / jnp.sqrt(dimensions)
    answers = jnp.float32(jax.random.uniform(jax.random.key(3), (1000,)) < jax.nn.sigmoid(design @ truth))

    def logdensity(x: Any) -> Any:
        logits = design @ x
        return jnp.sum(answers * logits - jnp.logaddexp(0.0, logits)) - 0.5 * jnp.sum(jnp.square(x))

    return logdensity


POSTERIORS = {"gaussian": gaussian, "regression": regression}


def program(logdensity: Callable[[Any], Any], dimensions: int, steps: int, keeps_info: bool) -> Callable[[], Any]:
    """A warmup as users run it: `(state, parameters), info = ...`, or where `info` is dropped."""
    adaptation = blackjax.window_adaptation(blackjax.nuts, logdensity)
    # BlackJAX compiles its loop anew in each call of `run`. Around all of it, that is done once.
    run = jax.jit(lambda key, start: adaptation.run(key, start, steps)[: 2 if keeps_info else 1])
    return lambda: run(jax.random.key(0), jnp.zeros(dimensions))


def timed(run: Callable[[], Any], context: Context) -> tuple[float, float]:
    """Seconds of a run, by the clock and of the processor."""
    before, worked = time.perf_counter(), time.process_time()
    with context():
        jax.block_until_ready(run())
        jax.effects_barrier()
    return time.perf_counter() - before, time.process_time() - worked


def contexts(alone: str | None) -> dict[str, Context]:
    """What is measured."""
    if alone:
        import jaxtap  # noqa: PLC0415 - whichever there is

        # Leaves are counted, since jax-tap's have no names: 12 is the step size in the state of window adaptation.
        return {alone: lambda: jaxtap.record(select=lambda leaves: leaves[12], max_depth=0)}
    import jaxtap_blackjax  # noqa: PLC0415 - jax-tap has no such package

    return {
        "watch_warmup": jaxtap_blackjax.watch_warmup,
        "watch_warmup, no tripwires": lambda: jaxtap_blackjax.watch_warmup(tripwires=False),
        "watch_warmup, no hooks": lambda: jaxtap_blackjax.watch_warmup(hooks=False),
        "watch_warmup, no hooks, no tripwires": lambda: jaxtap_blackjax.watch_warmup(hooks=False, tripwires=False),
    }


def measure(make: Callable[[], Callable[[], Any]], each: dict[str, Context], turns: int) -> dict[str, Any]:
    """Seconds and ratios of bare and watched runs, taking turns, and seconds of the first call, which compiles."""
    everything: dict[str, Context] = {"bare": contextlib.nullcontext} | each
    # jax-tap does not see what was compiled without it: each has a program of its own.
    runs = {name: make() for name in everything}
    first = {name: timed(runs[name], context)[0] for name, context in everything.items()}
    taken = [{name: timed(runs[name], context) for name, context in everything.items()} for _ in range(turns)]
    return {
        name: {
            "first_seconds": first[name],
            "seconds": statistics.median(turn[name][0] for turn in taken),
            "ratio": statistics.median(turn[name][0] / turn["bare"][0] for turn in taken),
            "processor_ratio": statistics.median(turn[name][1] / turn["bare"][1] for turn in taken),
        }
        for name in everything
    }


def main() -> None:
    """Measure, and write the result where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, default=100)
    parser.add_argument("--alone", metavar="NAME")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size, steps = options.dimensions, options.steps
    found = {
        f"{name}{'' if keeps_info else ', info dropped'}": measure(
            functools.partial(program, make(size), size, steps, keeps_info), contexts(options.alone), options.turns
        )
        for name, make in POSTERIORS.items()
        for keeps_info in (True, False)
    }
    where = f"py{platform.python_version().rpartition('.')[0]}-jax{jax.__version__}"
    report = {
        "on": where,
        "dimensions": options.dimensions,
        "steps": options.steps,
        "turns": options.turns,
        "load": os.getloadavg()[0],
        "aim": AIM,
        "measured": found,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"warmup{f'-{options.alone}' if options.alone else ''}-{where}.json").write_text(
            text + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
