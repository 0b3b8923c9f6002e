"""`jaxtap recompiles`: which of some calls trace and compile again, and why."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import jax

from jaxtap_command import _target
from jaxtap_command._bad import BadInput
from jaxtap_command._output import say, table, write_json
from jaxtap_command._signature import describe, differences, parameter_names
from jaxtap_command._target import Target, copied, running

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True)
class Row:
    """One case: what it was called with, what that did, and why."""

    case: int
    arguments: dict[str, str]
    what: str
    seconds: float
    why: list[str]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser, args=False)
    parser.add_argument(
        "--cases",
        metavar="EXPR",
        required=True,
        help="a list of calls, each the arguments in a tuple, or one argument: '[(jnp.ones(3),), (jnp.ones(4),)]'",
    )


def run(options: argparse.Namespace) -> int:
    """Call the function once a case, and say which calls were traced."""
    target = _target.find(options.target)
    rows = list(_rows(target, _cases(target, options.cases)))
    if options.format == "json":
        write_json({"function": target.name, "cases": [asdict(row) for row in rows]})
        return 0
    table(
        ["case", "what", "seconds", "why"],
        [[row.case, row.what, f"{row.seconds:.4f}", "; ".join(row.why)] for row in rows],
    )
    traced = sum(row.what != "cached" for row in rows)
    say(f"{target.name}: {traced} of {len(rows)} calls traced or compiled")
    return 0


def _cases(target: Target, text: str) -> list[tuple[Any, ...]]:
    cases = _target.evaluate(target, f"(\n{text}\n)", "--cases", text)
    if not isinstance(cases, list | tuple) or not cases:
        raise BadInput(f"--cases {text!r} is no list of calls: write '[(x,), (y,)]', one tuple of arguments a call")
    calls = [case if isinstance(case, tuple) else (case,) for case in cases]
    for args in calls:
        _target.check_fit(target, args, {})
    return calls


def _rows(target: Target, cases: list[tuple[Any, ...]]) -> Iterator[Row]:
    function, names = target.jitted, parameter_names(target.function)
    events: list[dict[str, float]] = []
    for number, args in enumerate(cases):
        # A call may use up arrays that a later case has too.
        given = jax.block_until_ready(copied(args))
        with _counting() as counted, running(target, f"called with case {number}"):
            jax.block_until_ready(function(*given))
        events.append(counted)
    values = _has_static(function, cases[-1])
    seen: list[dict[str, str]] = []
    for number, (args, counted) in enumerate(zip(cases, events, strict=True)):
        signature = describe(args, {}, names, values)
        what = "traced" if _TRACE in counted else "compiled" if _COMPILE in counted else "cached"
        yield Row(number, signature, what, sum(counted.values()), _why(signature, seen) if what != "cached" else [])
        seen.append(signature)


def _has_static(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether jit leaves some of the arguments out of tracing."""
    traced = jax.tree.leaves(function.trace(*args).args_info, is_leaf=lambda x: hasattr(x, "donated"))
    return len(traced) < len(jax.tree.leaves(args))


def _why(signature: dict[str, str], seen: list[dict[str, str]]) -> list[str]:
    """How a call differs from the earlier one that it is most like."""
    if not seen:
        return ["first call"]
    nearest = min((differences(old, signature) for old in reversed(seen)), key=len)
    return nearest or ["same arguments as before: a global, a closure or jax.config changed"]


@contextmanager
def _counting() -> Generator[dict[str, float]]:
    """The seconds of each kind of compile event in a block."""
    seconds: dict[str, float] = {}

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if "/compile/" in event:
            seconds[event] = seconds.get(event, 0.0) + duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
