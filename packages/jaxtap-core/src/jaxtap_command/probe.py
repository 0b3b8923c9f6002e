"""`jaxtap probe`: what each station of a compiled call says."""

from __future__ import annotations

import argparse

from jaxtap_command import _target
from jaxtap_command._output import write_json
from jaxtap_command._stages import stages, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Trace, lower and compile the function, without running it."""
    report = stages(_target.load(options))
    if options.format == "json":
        write_json(report)
    else:
        write(report)
    return 0
