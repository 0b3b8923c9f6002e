"""`jaxtap scan`, as a user runs it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command.shell import environment, run

BAD = "import jax\n\n\n@jax.jit\ndef f(x):\n    if x > 0:\n        return x\n    return -x\n"
GOOD = "import jax\n\nf = jax.jit(lambda x: x)\n"


def scan(*arguments: str | Path, cwd: Path) -> Any:
    return run("scan", *arguments, cwd=cwd)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_findings_as_text(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD, good=GOOD)
    done = scan(".", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == ""
    first, why, fix, see, last = done.stdout.splitlines()
    assert first == "./bad.py:6:8: J001 Python asks whether `x > 0` is true, and it is a traced array"
    assert why.startswith("    why: ") and fix.startswith("    fix: ") and see == "    see: docs/rules.md#j001"
    assert last == "1 finding in 2 files: J001 1"


def test_findings_as_json(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD)
    done = scan("bad.py", "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["files"] == 1 and found["bad"] == []
    assert {"path", "line", "column", "id", "message", "why", "fix", "docs"} == found["findings"][0].keys()
    assert (found["findings"][0]["line"], found["findings"][0]["id"]) == (6, "J001")


def test_nothing_found(tmp_path: Path) -> None:
    write(tmp_path, good=GOOD)
    done = scan("good.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing found in 1 file\n")


def test_select(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD)
    assert scan("bad.py", "--select", "J002,j003", cwd=tmp_path).returncode == 0
    assert scan("bad.py", "--select", "J001", cwd=tmp_path).returncode == 1


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD)
    (tmp_path / "again.py").symlink_to("bad.py")
    assert scan("bad.py", ".", cwd=tmp_path).stdout.splitlines()[-1] == "1 finding in 1 file: J001 1"


def test_a_link_to_the_folder_it_is_in(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert scan(".", cwd=tmp_path).stdout.splitlines()[-1] == "1 finding in 1 file: J001 1"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["missing.py"], "jaxtap scan: missing.py: no such file or folder: check the path"),
        (["empty"], "jaxtap scan: empty: no Python file in this folder: name another"),
        (["wrong.py"], "jaxtap scan: wrong.py:2: this is no Python"),
        (["binary.py"], "jaxtap scan: binary.py: this is no text, or not in its stated encoding: leave it out"),
        (["zeros.py"], "jaxtap scan: zeros.py: this is a binary file: leave it out"),
        (["itself.py"], "jaxtap scan: itself.py: cannot be read (Too many levels of symbolic links): name another"),
        (["good.py", "--select", "J099"], "jaxtap scan: --select: no rule J099; there are J001 to J020"),
        (["good.py", "--select", ","], "jaxtap scan: --select: no rule ','; there are J001 to J020"),
        (["pipe.py"], "jaxtap scan: pipe.py: this is no file, but a pipe or a device: leave it out"),
        (["book.ipynb"], "jaxtap scan: book.ipynb: this is a notebook: make a script of it"),
        (["deep.py"], "jaxtap scan: deep.py"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], line: str) -> None:
    write(tmp_path, good=GOOD, wrong="x = 1\ndef f(:\n", zeros="x = 1\0", deep="x = " + "-" * 100_000 + "1\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00\x01\x80")
    (tmp_path / "itself.py").symlink_to("itself.py")
    (tmp_path / "book.ipynb").write_text('{"cells": []}')
    os.mkfifo(tmp_path / "pipe.py")
    done = scan(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith(line) and done.stdout == ""


def test_bad_files_beside_good_ones(tmp_path: Path) -> None:
    """What cannot be read stops no scan, and is told of all the same."""
    write(tmp_path, bad=BAD, wrong="def f(:\n")
    (tmp_path / "itself.py").symlink_to("itself.py")
    done = scan(".", "missing", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 finding in 1 file: J001 1\n" in done.stdout and len(done.stderr.splitlines()) == 3


def test_scan_loads_neither_jax_nor_numpy_nor_what_it_reads(tmp_path: Path) -> None:
    write(tmp_path, boom="raise SystemExit('imported')\nimport jax\n")
    code = (
        "import sys, jaxtap_command; code = jaxtap_command.main(['scan', 'boom.py']);"
        "print(code, sorted({'jax', 'numpy', 'jaxtap', 'boom', 'rich'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment())
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    write(tmp_path, **{f"bad{i}": BAD for i in range(200)})
    command = [sys.executable, "-m", "jaxtap_command", "scan", "."]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, cwd=tmp_path, env=environment()) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.readline()
        done.stdout.close()
        assert b"Traceback" not in done.stderr.read()


def test_python_m_jaxtap(tmp_path: Path) -> None:
    write(tmp_path, bad=BAD)
    done = run("scan", "bad.py", cwd=tmp_path, module="jaxtap")
    assert done.returncode == 1 and "J001" in done.stdout


def test_no_command_and_help(tmp_path: Path) -> None:
    for arguments, told in (
        ([], "jaxtap: the following arguments are required: COMMAND: see jaxtap --help\n"),
        (["scan"], "jaxtap scan: the following arguments are required: PATH: see jaxtap scan --help\n"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    wrong = run("scan", ".", "--format", "xml", cwd=tmp_path)
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1 and "'xml'" in wrong.stderr
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in ("scan", "env", "probe", "recompiles", "bench", "profile", "mre"):
        assert f"\n    {name}" in done.stdout


def test_the_console_script() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="jaxtap")
    if not scripts and "PYTHONPATH" in os.environ:
        pytest.skip("run from source, where no console script is installed")
    (script,) = scripts
    assert script.value == "jaxtap_command:main"
