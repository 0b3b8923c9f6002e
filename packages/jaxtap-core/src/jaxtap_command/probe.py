"""`jaxtap probe`: what each station of a jitted call says."""

from __future__ import annotations

import argparse
from typing import Any

from jaxtap import Stages
from jaxtap_command import _target
from jaxtap_command._bad import DONE, BadInput
from jaxtap_command._output import say, write_json
from jaxtap_command._target import Target, running


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser)
    parser.add_argument("--save", metavar="DIR", help="write the text of each station to a file in this folder")


def run(options: argparse.Namespace) -> int:
    """Trace, lower and compile the function, without running it."""
    target = _target.load(options)
    with running(target, "being traced"):
        found = Stages(target.jitted, target.args, target.keywords)
    with running(target, "being lowered and compiled"):
        report, page = _report(target, found), found.report()
    paths = _save(found, options.save) if options.save else []
    if options.format == "json":
        write_json(report | {"saved": paths})
        return DONE
    for line in page.splitlines():
        say(line)
    for path in paths:
        say(f"wrote {path}")
    return DONE


def _report(target: Target, found: Stages) -> dict[str, Any]:
    """What the stations say, how long each took, and their texts."""
    seconds = {name: getattr(found, name).seconds for name in ("traced", "lowered", "compiled")}
    texts = {name: text for name, text in found.files().items() if not name.endswith(".json")}
    return {"function": target.name, "source": found.source, "seconds": seconds, **found.summary(), "texts": texts}


def _save(found: Stages, folder: str) -> list[str]:
    try:
        return [str(path) for path in found.save(folder)]
    except OSError as error:
        raise BadInput(f"--save {folder}: cannot be written ({error.strerror}): name another folder") from None
