"""Compare the speed of jaxtap with that of jax-tap 0.3.1; bench/README.md says how to read the result.

Run it with an interpreter that has jaxtap installed, or as `nox -s bench`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import venvs
from cases import CASES, Case, Turn, summary

HERE = Path(__file__).parent


class Worker:
    """A process that measures one case with one library, whenever it is asked to."""

    def __init__(self, library: venvs.Library, case: str) -> None:
        self._process = subprocess.Popen(
            [library.python, str(HERE / "worker.py"), case],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=library.variables | {"JAX_PLATFORMS": "cpu"},
        )
        self.about = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} failed; its message is above.")
        return json.loads(line)

    def measure(self) -> dict[str, float]:
        """One measurement."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def once(library: venvs.Library, case: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    with contextlib.closing(Worker(library, case)) as worker:
        return worker.measure()


def first_calls(libraries: Sequence[venvs.Library], case: str) -> Turn:
    """The first call bare, and with each library: a process for each."""
    bare = once(libraries[0], f"{case}-bare")
    return {
        library.name: {"bare_s": bare["first_s"], "lens_s": once(library, f"{case}-lens")["first_s"]}
        for library in libraries
    }


def in_turns(libraries: Sequence[venvs.Library], case: Case, count: int) -> list[Turn]:
    """The measurements of a case: the libraries take turns, each time in another order."""
    if case.alone:
        libraries = libraries[:1]
    orders = [libraries if i % 2 == 0 else libraries[::-1] for i in range(count)]
    if case.first_call:
        found = [first_calls(order, case.name) for order in orders]
    elif case.fresh:
        found = [{library.name: once(library, case.name) for library in order} for order in orders]
    else:
        with contextlib.ExitStack() as stack:
            workers = {lib.name: stack.enter_context(contextlib.closing(Worker(lib, case.name))) for lib in libraries}
            found = [{library.name: workers[library.name].measure() for library in order} for order in orders]
    return [{library.name: turn[library.name] for library in libraries} for turn in found]


# --- What is written -----------------------------------------------------------------------------------------


def commit() -> str:
    """The commit of the checkout that this file is in."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """Name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def facts() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(found: dict[str, float] | None) -> str:
    """Median, with least and greatest."""
    return "" if found is None else f"{number(found['median'])} ({number(found['min'])} to {number(found['max'])})"


def share(found: dict[str, float] | None) -> str:
    """A ratio below one as `1/20`."""
    if found is None:
        return ""
    return f"1/{1 / found['median']:.1f}" if 0 < found["median"] < 0.5 else f"{found['median']:.2f}"


def aim(made: dict[str, Any]) -> str:
    """What was to be reached, and whether it was."""
    if "aim" not in made:
        return ""
    limit, met = made["aim"]["at_most"], made["aim"]["met"]
    text = f"1/{1 / limit:.0f} of jax-tap" if made["aim"]["of"] == "ratio" else f"{limit:g} {made['unit']}"
    return f"{text}: {'not measured' if met is None else 'met' if met else 'MISSED'}"


def line(made: dict[str, Any], names: Sequence[str]) -> str:
    """A row of the table in Markdown."""
    cells = [
        made["title"],
        made["unit"],
        *(cell(made.get(name)) for name in names),
        share(made.get("ratio")),
        aim(made),
    ]
    return f"| {' | '.join(cells)} |"


def table(results: dict[str, Any], names: Sequence[str]) -> str:
    """The results in Markdown."""
    heads = ["", "unit", *names, "ratio", "aim, at most"]
    about = ", ".join(f"{name} {value}" for name, value in results["facts"].items())
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *(line(made, names) for made in results["rows"])]
    return "\n".join([f"Written by `bench/run.py`: median (least to greatest). {about}.", "", *lines, ""])


def write(results: dict[str, Any], names: Sequence[str], folder: Path) -> None:
    """Write the results to a folder, under the versions that they hold for."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"py{sys.version_info.major}.{sys.version_info.minor}-jax{version('jax')}"
    Path(f"{stem}.json").write_text(json.dumps(results, indent=1) + "\n")
    Path(f"{stem}.md").write_text(table(results, names))
    print(f"in {stem}.json and {stem}.md")


# --- The command ---------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="CASE", help="cases to run: " + ", ".join(c.name for c in CASES))
    parser.add_argument("--turns", type=int, help="turns of each case, for a quick look")
    parser.add_argument("--alone", action="store_true", help="without jax-tap")
    parser.add_argument("--out", type=Path, help="folder for the results; bench/results for a full run")
    return parser.parse_args()


def chosen(only: Sequence[str] | None) -> list[Case]:
    """The cases to run."""
    unknown = set(only or ()) - {case.name for case in CASES}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}.")
    cases = [case for case in CASES if only is None or case.name in only]
    if not venvs.has_blackjax():
        print("without first-warmup and first-nuts: this interpreter has no blackjax", flush=True)
        cases = [case for case in cases if "warmup" not in case.name and "nuts" not in case.name]
    return cases


def main() -> None:
    """Measure, print and write."""
    options = arguments()
    cases = chosen(options.only)
    libraries = [venvs.ours()] if options.alone else [venvs.ours(), venvs.jax_tap()]
    names = [library.name for library in libraries]
    results: dict[str, Any] = {"facts": facts(), "rows": [], "turns": {}}
    for case in cases:
        turns = in_turns(libraries, case, options.turns or case.turns)
        results["turns"][case.name] = turns
        for row in case.rows:
            results["rows"].append(summary(case, row, turns))
            print(line(results["rows"][-1], names), flush=True)
    print(f"\n{table(results, names)}")
    is_full = not (options.only or options.turns or options.alone)
    folder = options.out or (HERE / "results" if is_full else None)
    if folder is not None:
        write(results, names, folder)


if __name__ == "__main__":
    main()
