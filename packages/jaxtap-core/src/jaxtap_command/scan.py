"""`jaxtap scan`: static rules over files and folders."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator

from jaxtap_command._bad import BAD, DONE, FOUND, BadInput
from jaxtap_command._output import say, write_json
from jaxtap_command._rules import RULES, Finding, check


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, or a folder of them")
    parser.add_argument("--select", metavar="IDS", help="only these rules, as J001,J005")


def run(options: argparse.Namespace) -> int:
    """Scan, and write what was found."""
    select = _selected(options.select)
    findings: list[Finding] = []
    bad: list[str] = []
    files = 0
    for path in _files(options.paths, bad):
        try:
            findings += check(_read(path), path, select)
            files += 1
        except BadInput as error:
            bad.append(str(error))
        except SyntaxError as error:
            bad.append(
                f"{path}:{error.lineno or 1}: this is no Python {_python()} ({error.msg}): mend it or leave it out"
            )
        except ValueError as error:
            bad.append(f"{path}: this is no Python source ({error}): leave it out")
        except (RecursionError, MemoryError):
            bad.append(f"{path}: its expressions are nested too deeply to read: leave it out")
    if options.format == "json":
        write_json({"files": files, "findings": [f.as_dict() for f in findings], "bad": bad})
    elif files:
        _write(findings, files)
    for line in bad:
        print(f"jaxtap scan: {line}", file=sys.stderr)
    return BAD if bad else FOUND if findings else DONE


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _selected(text: str | None) -> list[str]:
    if text is None:
        return list(RULES)
    ids = [part.strip().upper() for part in text.split(",") if part.strip()]
    unknown = [id for id in ids if id not in RULES]
    if unknown or not ids:
        raise BadInput(f"--select: no rule {', '.join(unknown) or repr(text)}; there are {min(RULES)} to {max(RULES)}")
    return ids


def _files(paths: list[str], bad: list[str]) -> Iterator[str]:
    """The Python files of some paths, each once; what is wrong with a path is added to `bad`."""
    seen: set[str] = set()
    for path in paths:
        try:
            files = list(_walk(path))
        except BadInput as error:
            bad.append(str(error))
            continue
        if not files:
            bad.append(f"{path}: no Python file in this folder: name another")
        for file in files:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file


def _walk(path: str) -> Iterator[str]:
    """The Python files of one path. Links to folders are not followed."""
    try:
        os.stat(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file or folder: check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path}: cannot be read ({reason}): name another") from None
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def _read(path: str) -> str:
    if path.endswith(".ipynb"):
        raise BadInput(f"{path}: this is a notebook: make a script of it, jupyter nbconvert --to script")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise BadInput(f"{path}: this is no file, but a pipe or a device: leave it out")
        with tokenize.open(path) as file:
            text = file.read()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}): leave it out") from None
    except (SyntaxError, UnicodeDecodeError):
        raise BadInput(f"{path}: this is no text, or not in its stated encoding: leave it out") from None
    if "\0" in text:
        raise BadInput(f"{path}: this is a binary file: leave it out")
    return text


def _write(findings: list[Finding], files: int) -> None:
    for finding in findings:
        say(f"{finding.path}:{finding.line}:{finding.column}: {finding.id} {finding.message}")
        say(f"    why: {finding.why}")
        say(f"    fix: {finding.fix}")
        say(f"    see: {finding.docs}")
    counts = Counter(finding.id for finding in findings)
    which = ", ".join(f"{id} {number}" for id, number in sorted(counts.items()))
    told = f"{len(findings)} finding{'s' * (len(findings) != 1)}" if findings else "nothing found"
    say(f"{told} in {files} file{'s' * (files != 1)}{f': {which}' if which else ''}")
