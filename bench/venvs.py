"""The two libraries that are compared. Both are imported as `jaxtap`, so each has an environment of its own."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CACHE = Path(__file__).parent / ".venvs"
JAX_TAP = "0.3.1"

# What both environments have in the same version; the last only where this interpreter has it.
SHARED = ("jax", "jaxlib", "numpy", "blackjax")


@dataclasses.dataclass(frozen=True)
class Library:
    """An interpreter that imports one of the two libraries.

    Attributes:
      name: the distribution, with its version.
      python: path of the interpreter.
      variables: its environment variables.
    """

    name: str
    python: str
    variables: dict[str, str]


def pins() -> list[str]:
    """Requirements for the versions that this interpreter has."""
    found = []
    for package in SHARED:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:
            continue
    return found


def has_blackjax() -> bool:
    """Whether this interpreter can run BlackJAX's programs."""
    return any(pin.startswith("blackjax") for pin in pins())


def ours() -> Library:
    """The jaxtap of this interpreter."""
    return Library("jaxtap", sys.executable, dict(os.environ))


def jax_tap() -> Library:
    """jax-tap with the Python and the JAX of this interpreter, installed the first time."""
    wanted = [f"jax-tap=={JAX_TAP}", *pins()]
    name = f"jax-tap-{JAX_TAP}-py{sys.version_info.major}.{sys.version_info.minor}-jax{version('jax')}"
    folder, python = CACHE / name, str(CACHE / name / "bin" / "python")
    ready = folder / "requirements.txt"
    if not ready.exists() or ready.read_text().split() != wanted:
        print(f"installing {' '.join(wanted)} in {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        ready.write_text("\n".join(wanted))
    # A PYTHONPATH that shows this jaxtap would hide the other.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return Library(f"jax-tap {JAX_TAP}", python, variables)
