"""The README's example prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_and_its_output() -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    code, output = found.groups()
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == output


def test_the_nan_and_its_line(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (line,) = re.findall(r"^\[tap\] FAIL .*$", text, re.MULTILINE)
    program = tmp_path / "program.py"
    program.write_text(f"import jax, jax.numpy as jnp\nimport jaxtap as tap\n\n{blocks[1]}")
    run = subprocess.run([sys.executable, "-W", "error", str(program)], capture_output=True, text=True, check=True)
    assert run.stderr.splitlines() == [line]
