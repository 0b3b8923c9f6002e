"""Run the command as a user does, in a process and a folder of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jaxtap_command import main

# A path that PYTHONPATH gives in short is another one from another folder.
_PATH = os.pathsep.join(map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))

PROGRAM = """
from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as unused

print("importing")
SCALE = 2.0


def helper(x):
    return x * SCALE


def other(x):
    return x


def step(x, number=None):
    return helper(jnp.sin(x)).sum()


@partial(jax.jit, static_argnames="n", donate_argnames="x")
def power(x, n):
    print("tracing")
    return x**n


def branch(x):
    if x > 0:
        return x
    return -x


def keyed(key, p):
    return jax.random.normal(key, (3,)) + p["w"]


number = 3
"""


def environment(**variables: str) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return keep | {"PYTHONPATH": _PATH, "JAX_PLATFORMS": "cpu"} | variables


def run(*arguments: str | Path, cwd: Path, module: str = "jaxtap_command", **variables: str) -> Any:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=environment(**variables), timeout=300
    )


def answer(*arguments: str | Path, cwd: Path, code: int = 0, **variables: str) -> Any:
    """What the command writes as JSON, and nothing else."""
    done = run(*arguments, "--format", "json", cwd=cwd, **variables)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def text(*arguments: str | Path, cwd: Path, code: int = 0, **variables: str) -> str:
    done = run(*arguments, cwd=cwd, **variables)
    assert done.returncode == code, done.stderr
    return done.stdout


def complaint(*arguments: str | Path, cwd: Path, code: int = 2) -> str:
    """The one line that the command writes where it can do nothing; in this process, which is quicker."""
    out, err = io.StringIO(), io.StringIO()
    path, modules = list(sys.path), set(sys.modules)
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            sys.path.insert(0, str(cwd))
            assert main(list(map(str, arguments))) == code
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(cwd) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
    assert out.getvalue() == ""
    lines = [line for line in err.getvalue().splitlines() if line not in ("importing", "tracing")]
    assert len(lines) == 1, err.getvalue()
    return lines[0]
