"""The front door: reads the arguments and hands them to one subcommand, whose module is imported only then."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from jaxtap_command._bad import BAD, FOUND, BadInput, Failed

_DESCRIPTION = "Evidence about JAX programs, the cheapest first."
_COMMANDS = {
    "scan": "find JAX hazards in source, without running or importing it",
    "env": "what JAX runs on, what it was set to, and what can still be set",
    "probe": "what a function is traced, lowered and compiled to",
    "recompiles": "which of some calls trace and compile again, and why",
    "bench": "compile time apart from run time, each call waited for, transfers apart",
    "profile": "write a trace of some calls, and name what opens it",
    "mre": "write the smallest script that does what a call does",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
      0; 1 where a scan found something or a program failed; 2 for input that it cannot work with.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(argv)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except (BadInput, Failed) as bad:
        print(f"jaxtap {options.command}: {' '.join(str(bad).split())}", file=sys.stderr)
        return BAD if isinstance(bad, BadInput) else FOUND
    except BrokenPipeError:
        # The reader, as in `jaxtap scan . | head`, has seen enough.
        sys.stderr.close()
        return FOUND


class _Parser(argparse.ArgumentParser):
    """A parser that tells of wrong arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD, f"{self.prog}: {' '.join(message.split())}: see {self.prog} --help\n")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxtap", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if argv[:1] == [name]:
            module = importlib.import_module(f"jaxtap_command.{name}")
            command.set_defaults(run=module.run)
            module.arguments(command)
            command.add_argument("--format", choices=("text", "json"), default="text", help="how to write it")
    return parser
