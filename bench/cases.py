"""What is compared, and how a row of the table is made from the measurements."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

# What one library measured, and what all did in one turn.
Measured = dict[str, float]
Turn = dict[str, Measured]


def over_bare(measured: Measured) -> float:
    """Microseconds an event takes over the bare program."""
    return (measured["lens_s"] - measured["bare_s"]) / measured["events"] * 1e6


def over_bare_8(measured: Measured) -> float:
    """Microseconds a step of eight lanes takes over the bare program."""
    return 8 * over_bare(measured)


def over_bare_64(measured: Measured) -> float:
    """Microseconds a step of 64 lanes takes over the bare program."""
    return 64 * over_bare(measured)


def bare_step(measured: Measured) -> float:
    """Microseconds a step takes without a lens."""
    return measured["bare_s"] / measured["events"] * 1e6


def times_bare(measured: Measured) -> float:
    """How many times the bare program's time it takes."""
    return measured["lens_s"] / measured["bare_s"]


def seconds_more(measured: Measured) -> float:
    """Seconds over the bare program."""
    return measured["lens_s"] - measured["bare_s"]


def reading(measured: Measured) -> float:
    """Microseconds an event takes to be read from the recorder for the first time."""
    return measured["read_s"] / measured["events"] * 1e6


def per_second(measured: Measured) -> float:
    """Events in a second."""
    return measured["events"] / measured["written_s"]


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
      title: what is measured.
      unit: of the figure.
      figure: from what one library measured in a turn.
      aim: the greatest figure that is good enough, or None.
      ratio_aim: the greatest ratio to jax-tap that is good enough, or None.
    """

    title: str
    unit: str
    figure: Callable[[Measured], float]
    aim: float | None = None
    ratio_aim: float | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured together.

    Attributes:
      name: what `--only` takes, and the case of the worker.
      turns: how often the workers take turns.
      rows: what is told of it.
      fresh: whether each turn needs a process of its own.
      alone: whether jax-tap has nothing like it.
      first_call: whether it is a first call, measured bare and under a lens in two processes.
    """

    name: str
    turns: int
    rows: tuple[Row, ...]
    fresh: bool = False
    first_call: bool = False
    alone: bool = False


def first_call(name: str, turns: int, title: str, *, is_tiny: bool, aim: float = 1.5) -> Case:
    """A first call: trace, lower, compile and run."""
    tiny = Row(f"first call, {title}", "s more", seconds_more, 0.2 if is_tiny else None)
    large = Row(f"first call, {title}", "times bare", times_bare, None if is_tiny else aim)
    return Case(f"first-{name}", turns, (tiny, large) if is_tiny else (large, tiny), first_call=True)


CASES = (
    Case(
        "scan",
        15,
        (
            Row("8-float scan, every step", "µs/event", over_bare, ratio_aim=1 / 20),
            Row("reading `rec.events` the first time", "µs/event", reading),
        ),
    ),
    Case("scan-vmap-8", 9, (Row("8-float scan under 8 vmap lanes", "µs/step", over_bare_8, ratio_aim=1 / 100),)),
    Case("scan-vmap-64", 5, (Row("8-float scan under 64 vmap lanes", "µs/step", over_bare_64, ratio_aim=1 / 500),)),
    Case(
        "gathered-scan",
        9,
        (
            Row("8-float scan, every step, gathered", "µs/event", over_bare, 0.5),
            Row("the same, by jax-tap's", "µs/event", over_bare, ratio_aim=1 / 400),
        ),
    ),
    Case(
        "gathered-vmap-64",
        3,
        (
            Row("200 steps of 64 vmap lanes, gathered", "µs/step", over_bare_64, 2.0),
            Row("the same, by jax-tap's", "µs/step", over_bare_64, ratio_aim=1 / 5000),
        ),
    ),
    Case(
        "gathered-vmap-64-long",
        3,
        (
            Row("5,000 steps of 64 vmap lanes, gathered", "µs/step", over_bare_64, 2.0),
            Row("the same, by jax-tap's", "µs/step", over_bare_64, ratio_aim=1 / 5000),
        ),
    ),
    Case(
        "trajectories",
        5,
        (Row("trajectories of 15 leapfrog steps, 100 dimensions, all loops", "times bare", times_bare, 1.5),),
        alone=True,
    ),
    Case(
        "trajectories-one",
        5,
        (Row("the same, one number of the state", "times bare", times_bare, 1.5),),
        alone=True,
    ),
    Case(
        "warmup",
        7,
        (Row("warmup of NUTS, 100 dimensions, 1,000 steps, `max_depth=0`", "times bare", times_bare, 1.02),),
        alone=True,
    ),
    *(
        Case(
            f"body-{size}{way}",
            3,
            (
                Row(f"body of {size} sines, {told}", "µs/step", over_bare),
                Row(f"the body of {size} sines itself", "µs/step", bare_step),
            ),
            alone=way == "",
        )
        for way, told in (("", "gathered"), ("-alone", "one by one"))
        for size in (1, 4, 16, 64, 256)
    ),
    Case("scan-on-step", 9, (Row("`verbose` with an empty `on_step`", "µs/event", over_bare),)),
    Case("scan-jsonl", 9, (Row("`verbose` with a `JSONLWriter`", "µs/event", over_bare),)),
    Case(
        "nested-all",
        9,
        (
            Row("sampler-like nest, all loops", "µs/event", over_bare),
            Row("sampler-like nest, all loops", "times bare", times_bare),
        ),
    ),
    Case(
        "nested-outer",
        9,
        (
            Row("sampler-like nest, `max_depth=0`", "µs/event", over_bare),
            Row("sampler-like nest, `max_depth=0`", "times bare", times_bare),
        ),
    ),
    Case(
        "watch-sin",
        9,
        (Row('silent `watch_nan("sin")`, 8-float scan', "µs/step", over_bare, 0.2),),
    ),
    Case(
        "watch-state",
        9,
        (
            Row("silent `watch_nan()`, body of about 100 µs", "times bare", times_bare, 1.1),
            Row("the body itself", "µs/step", lambda measured: measured["bare_s"] / measured["events"] * 1e6),
        ),
        alone=True,
    ),
    Case("debug-nans", 9, (Row("the same under `jax.debug_nans`", "times bare", times_bare),), alone=True),
    Case(
        "memory",
        3,
        (
            Row("memory of a recorded scalar event", "bytes", lambda measured: measured["kept_bytes"], 40.0),
            Row("the same, once it was read", "bytes", lambda measured: measured["read_bytes"]),
        ),
        fresh=True,
    ),
    Case(
        "table",
        3,
        (
            Row("`df()` of 10 million scalar events", "s", lambda measured: measured["df_s"], 2.0),
            Row("memory of these", "MB", lambda measured: measured["kept_bytes"] / 1e6, 400.0),
        ),
        fresh=True,
        alone=True,
    ),
    Case("jsonl", 5, (Row("events that a `JSONLWriter` writes", "events/s", per_second),), alone=True),
    first_call("tiny", 9, "8-float scan", is_tiny=True),
    first_call("nested", 7, "sampler-like nest", is_tiny=True),
    first_call("network", 5, "unrolled network in a scan", is_tiny=False),
    first_call("warmup", 7, "BlackJAX window adaptation, all loops", is_tiny=False),
    first_call("warmup-outer", 5, "BlackJAX window adaptation, `max_depth=0`", is_tiny=False),
    first_call("nuts", 7, "BlackJAX NUTS, 8 chains, all loops", is_tiny=False),
    first_call("nuts-outer", 5, "BlackJAX NUTS, 8 chains, `max_depth=0`", is_tiny=False, aim=1.15),
)


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(case: Case, row: Row, turns: list[Turn]) -> dict[str, Any]:
    """A row with its figures; ratios are taken within a turn, where the machine was in the same mood."""
    figures = {name: [row.figure(turn[name]) for turn in turns] for name in turns[0]}
    made: dict[str, Any] = {"case": case.name, "title": row.title, "unit": row.unit, "turns": len(turns)}
    made |= {name: spread(values) for name, values in figures.items()}
    # A difference of two compile times may be nothing or less: of those there is no ratio.
    if len(figures) == 2 and row.figure is not seconds_more:
        made["ratio"] = spread([a / b for a, b in zip(*figures.values(), strict=True)])
    limit = row.aim if row.ratio_aim is None else row.ratio_aim
    if limit is not None:
        found = made["jaxtap"] if row.ratio_aim is None else made.get("ratio")
        met = None if found is None else found["median"] <= limit
        made["aim"] = {"of": "figure" if row.ratio_aim is None else "ratio", "at_most": limit, "met": met}
    return made
