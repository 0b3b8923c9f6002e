"""`jaxtap recompiles`: which of some calls trace and compile again, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import jax

from jaxtap import Compile, CompileLog, compiles
from jaxtap_command import _target
from jaxtap_command._bad import DONE, FOUND, BadInput
from jaxtap_command._output import say, table, write_json
from jaxtap_command._target import Call, Target, copied, quietly, tell


@dataclass(frozen=True)
class Row:
    """One case: what the call did, how long that took, why, and with which arguments."""

    case: int
    what: str
    seconds: float = 0.0
    why: list[str] = field(default_factory=list[str])
    arguments: dict[str, str] = field(default_factory=dict[str, str])


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser, args=False)
    parser.add_argument(
        "--cases",
        metavar="EXPR",
        required=True,
        help="a list of calls, each the arguments in a tuple, one argument, or call(x, n=2): '[(x, 2), call(x, n=3)]'",
    )


def run(options: argparse.Namespace) -> int:
    """Call the function once a case, and say which calls were traced."""
    target = _target.find(options.target)
    rows = list(_rows(target, _cases(target, options.cases)))
    if options.format == "json":
        write_json({"function": target.name, "cases": [asdict(row) for row in rows]})
    else:
        table(
            ["case", "what", "seconds", "why"],
            [[row.case, row.what, f"{row.seconds:.4f}", "; ".join(row.why)] for row in rows],
        )
        made = sum(row.what in ("traced", "compiled") for row in rows)
        say(f"{target.name}: {made} of {len(rows)} calls traced or compiled")
    return FOUND if any(row.what == "raised" for row in rows) else DONE


def _cases(target: Target, text: str) -> list[Call]:
    cases = _target.evaluate(target, f"(\n{text}\n)", "--cases", text)
    if not isinstance(cases, list | tuple) or not cases:
        raise BadInput(
            f"--cases {text!r} is no list of calls: write '[(x, 2), call(x, n=3)]', one tuple or call(...) each"
        )
    calls = [_call(case) for case in cases]
    for call in calls:
        _target.check_fit(target, call)
    return calls


def _call(case: Any) -> Call:
    if isinstance(case, Call):
        return case
    return Call(case if isinstance(case, tuple) else (case,), {})


def _rows(target: Target, cases: list[Call]) -> Iterator[Row]:
    function = target.jitted
    # A call may use up arrays that a later case has too.
    given = jax.block_until_ready([copied((case.args, case.kwargs)) for case in cases])
    with compiles() as log:
        for number, (args, kwargs) in enumerate(given):
            before = len(log)
            try:
                with quietly():
                    jax.block_until_ready(function(*args, **kwargs))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's function may raise anything
                yield Row(number, "raised", why=[tell(error)])
            else:
                yield _row(number, _last_of(function, log, before))


def _last_of(function: Any, log: CompileLog, before: int) -> Compile | None:
    """The newest program of a function, of those that are new in the log."""
    name = getattr(function, "__name__", "")
    rows = [row for row in log[before:] if not row.of_jax]
    return next((row for row in reversed(rows) if row.name == name), rows[-1] if rows else None)


def _row(number: int, program: Compile | None) -> Row:
    if program is None:
        return Row(number, "cached")
    what = "compiled" if program.trace_seconds is None else "traced"
    why = list(dict.fromkeys(map(str, program.changes))) or ["first call"]
    return Row(number, what, program.seconds, why, dict(program.arguments))
