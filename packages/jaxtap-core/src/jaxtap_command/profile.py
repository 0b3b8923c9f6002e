"""`jaxtap profile`: a trace of one call in a directory, and what opens it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax

from jaxtap_command import _target
from jaxtap_command._bad import DONE, BadInput
from jaxtap_command._output import say, write_json
from jaxtap_command._target import copied, running


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser)
    parser.add_argument("--out", metavar="DIR", default="jaxtap-profile", help="where it is written (jaxtap-profile)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="how many calls are traced (3)")


def run(options: argparse.Namespace) -> int:
    """Compile and warm up outside of the trace, then trace some calls."""
    if options.repeat < 1:
        raise BadInput(f"--repeat {options.repeat}: trace one call at least")
    out = Path(options.out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {options.out} is a file: name a folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {options.out}: cannot be made ({error.strerror}): name another folder") from None
    target = _target.load(options)
    function = target.jitted
    with running(target, "being run"):
        donates = target.donates()

        def given() -> Any:
            values = (target.args, target.keywords)
            return jax.block_until_ready(copied(values)) if donates else values

        args, kwargs = given()
        jax.block_until_ready(function(*args, **kwargs))
        before = set(out.rglob("*"))
        with jax.profiler.trace(str(out), create_perfetto_trace=True):
            for number in range(options.repeat):
                args, kwargs = given()
                with jax.profiler.StepTraceAnnotation(target.name, step_num=number):
                    jax.block_until_ready(function(*args, **kwargs))
    files = sorted(str(path) for path in set(out.rglob("*")) - before if path.is_file())
    perfetto = next((path for path in files if "perfetto" in path), None)
    opens = {
        "xprof": f"pip install xprof; xprof --logdir {out}",
        "perfetto": f"https://ui.perfetto.dev, and open {perfetto}",
    }
    if options.format == "json":
        write_json({"function": target.name, "repeat": options.repeat, "files": files, "open": opens})
        return DONE
    say(f"{target.name}: {options.repeat} calls, after a first one to compile")
    for path in files:
        say(f"    {path}")
    for tool, how in opens.items():
        say(f"open with {tool}: {how}")
    return DONE
