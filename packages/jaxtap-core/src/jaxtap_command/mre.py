"""`jaxtap mre`: the smallest script that does what a call does, and whether it does."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from jaxtap_command import _target
from jaxtap_command._bad import DONE, FOUND, BadInput
from jaxtap_command._excerpt import excerpt, imported
from jaxtap_command._literals import NotWritten, literal
from jaxtap_command._output import say, write_json
from jaxtap_command._target import Target, is_jitted, quietly, tell
from jaxtap_command.env import environment

_MADE = "Made by jaxtap mre"
_SECONDS = 600


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser)
    parser.add_argument("--out", metavar="FILE", help="the script (mre_FUNCTION.py)")


def run(options: argparse.Namespace) -> int:
    """Call the function here, write the script, run it, and compare."""
    target = _target.load(options)
    name = options.target.partition(":")[2]
    out = Path(options.out or f"mre_{name}.py")
    _writable(out)
    code, where = _code(target, name)
    given = _arguments(target, options.args)
    here = _outcome(target)
    out.write_text(_script(target, name, code, given, here), encoding="utf-8")
    there = _run(out)
    same = _kind(there) == _kind(here)
    if options.format == "json":
        write_json({"function": target.name, "script": str(out), "here": here, "script_did": there, "reproduced": same})
        return DONE if same else FOUND
    say(f"wrote {out}: {where}")
    say(f"{target.name} {here}")
    say(f"{out} {there}: {'reproduced' if same else 'NOT reproduced'}")
    return DONE if same else FOUND


def _writable(out: Path) -> None:
    if out.is_dir():
        raise BadInput(f"--out {out} is a folder: name a file")
    if not out.parent.is_dir():
        raise BadInput(f"--out {out}: there is no folder {out.parent}: make it first")
    if out.exists() and _MADE not in out.read_text(encoding="utf-8", errors="replace"):
        raise BadInput(f"{out} exists, and is not of this command's making: name another with --out")


def _code(target: Target, name: str) -> tuple[str, str]:
    """The source that the function needs, or an import of it, and which."""
    root = name.partition(".")[0]
    for module in (target.module.__name__, getattr(target.function, "__module__", "")):
        spec = importlib.util.find_spec(module) if module and module != "__main__" else None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        text = Path(spec.origin).read_text(encoding="utf-8")
        found = excerpt(text, root)
        if found is not None and f"import {root}" not in found and "from ." not in found:
            return found, "it holds what the function needs of its module"
    return f"from {target.module.__name__} import {root}", "it imports the function from its module"


def _outcome(target: Target) -> str:
    """What the call does here, in a few words."""
    try:
        with quietly():
            result = jax.block_until_ready(target.jitted(*target.args, **target.keywords))
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything
        return f"raised {tell(error)}"
    return f"returned {', '.join(_short(leaf) for leaf in jax.tree.leaves(result)) or 'nothing'}"


def _short(leaf: Any) -> str:
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" if hasattr(leaf, "dtype") else repr(leaf)


def _kind(outcome: str) -> str:
    """What has to be the same: the type of the error, or the shapes."""
    return outcome.partition(":")[0]


def _script(target: Target, name: str, code: str, given: str, here: str) -> str:
    call = name if is_jitted(target.function) else f"jax.jit({name})"
    return f'''"""{target.name} {_safe(here)}. {_MADE}.

{_environment()}
"""

{_tidy(code)}
{_imports(code, given)}

def _take(*args, **kwargs):
    return args, kwargs


args, kwargs = _take({given})
result = jax.block_until_ready({call}(*args, **kwargs))
shapes = [f"{{x.dtype}}[{{','.join(map(str, x.shape))}}]" for x in jax.tree.leaves(result)]
print("returned", ", ".join(shapes) or "nothing")
'''


def _tidy(code: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", code.strip())


def _imports(code: str, given: str) -> str:
    """The imports that the arguments need and the function's code has not."""
    needed = {"jax": "import jax"}
    if "jnp." in given:
        needed["jnp"] = "import jax.numpy as jnp"
    if "np." in given.replace("jnp.", ""):
        needed["np"] = "import numpy as np"
    there = imported(code)
    missing = [line for name, line in needed.items() if name not in there]
    return "".join(f"\n{line}" for line in missing) + "\n" * bool(missing)


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")


def _arguments(target: Target, expression: str) -> str:
    """The arguments by shape and dtype; as they were given, where they are of types of one's own."""
    try:
        by_position = [literal(value) for value in target.args]
        return ", ".join([*by_position, *(f"{key}={literal(value)}" for key, value in target.keywords.items())])
    except NotWritten:
        return expression


def _environment() -> str:
    report = environment()
    lines = [f"{name} {report[name]}" for name in ("python", "jax", "jaxlib", "numpy", "platform")]
    devices = report["devices"]
    lines.append(f"devices {devices if isinstance(devices, str) else ', '.join(d['kind'] for d in devices)}")
    lines += [f"{name}={variable['value']}" for name, variable in report["variables"].items()]
    lines += [f"jax.config {c['option']} = {c['value']}" for c in report["changed"]]
    return _safe("\n".join(lines))


def _run(out: Path) -> str:
    """What the script does in a process of its own, in the words of `_outcome`."""
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(out)]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=os.environ | {"PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return f"ran for more than {_SECONDS} s"
    if run.returncode == 0:
        return run.stdout.strip().splitlines()[-1]
    if run.returncode < 0:
        return f"was ended by signal {-run.returncode}"
    for line in reversed(run.stderr.splitlines()):
        if match := re.match(r"(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt|Warning)): ?(.*)", line):
            return f"raised {match[1]}: {match[2].rstrip('.')}"
    return "raised an error"
