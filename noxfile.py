"""The project's tasks; `nox -l` lists them. Versions and dependency groups come from pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.11.12"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "types", "tests"]

ROOT = Path(__file__).parent
PACKAGES = ("jaxtap-core", "jaxtap-blackjax", "jaxtap-flax", "jaxtap-optax")
DIST = ROOT / "dist"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
JAX_FOR_PYTHON: dict[str, str] = PYPROJECT["tool"]["jaxtap"]["jax-for-python"]
NIGHTLY = "https://us-python.pkg.dev/ml-oss-artifacts-published/jax-public-nightly-artifacts-registry/simple/"
# Tests that say something of an installed wheel, and need nothing else of the repository.
OUTSIDE = (
    *("tests/core/test_every_step.py", "tests/core/test_recorder.py", "tests/core/test_nothing_left.py"),
    *("tests/core/test_lifetimes.py", "tests/adapters/test_optax.py", "tests/adapters/test_flax_training.py"),
    "tests/adapters/test_blackjax_selectors.py",
)
OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def release(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")))


def runs(python: str | Path) -> bool:
    """Whether `python` starts. pyenv puts a shim on PATH for each version it has; those of inactive ones fail."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def pyenv_bin(python: str) -> Path | None:
    """The folder that holds pyenv's newest release of a Python such as "3.12"."""
    roots = [Path.home() / ".pyenv"]
    if pyenv := shutil.which("pyenv"):
        roots.insert(0, Path(pyenv).resolve().parent.parent)
    if root := os.environ.get("PYENV_ROOT"):
        roots.insert(0, Path(root))
    for root in roots:
        releases = [path for path in root.glob(f"versions/{python}.*") if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
        for path in sorted(releases, key=lambda path: release(path.name), reverse=True):
            if runs(path / "bin" / "python"):
                return path / "bin"
    return None


def find(python: str) -> bool:
    """Whether nox can use this Python; if it is pyenv's, it is put on PATH, where nox looks."""
    if python == OWN_PYTHON:
        return True
    if folder := pyenv_bin(python):
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        return True
    return any(runs(Path(folder, f"python{python}")) for folder in os.environ["PATH"].split(os.pathsep))


PYTHONS = sorted(JAX_FOR_PYTHON, key=release)
if release(OWN_PYTHON) > release(PYTHONS[-1]):
    # A machine that has only a newer Python still has something to test with.
    PYTHONS.append(OWN_PYTHON)
FOUND = [python for python in PYTHONS if find(python)]
NEWEST = FOUND[-1] if FOUND else PYTHONS[-1]
DEMO = ["eight_schools"]
FLOOR = next(python for python in PYTHONS if JAX_FOR_PYTHON.get(python) == "jax-floor")


def group(*names: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PYPROJECT, *names)


def jax_for(session: nox.Session) -> str:
    """The dependency group with this session's JAX."""
    return JAX_FOR_PYTHON.get(str(session.python), "jax-newest")


def install(session: nox.Session, *groups: str, jax: tuple[str, ...] | None = None) -> None:
    """Install the wheels that `wheels` has built, the JAX for this Python or another, and the groups."""
    wheels = sorted(map(str, DIST.glob("*.whl")))
    session.install(*wheels, *(group(jax_for(session)) if jax is None else jax), *group(*groups))
    # pip leaves an installed wheel of the same version alone, whatever is in the new one.
    session.install("--force-reinstall", "--no-deps", *wheels)
    # Tests start Python often, and JAX takes thrice as long to import where no bytecode may be kept.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the source distributions, and from those the wheels, into dist/."""
    session.install(*group("build"))
    shutil.rmtree(DIST, ignore_errors=True)
    for package in PACKAGES:
        session.run(
            "python", "-m", "build", "--no-isolation", "--outdir", str(DIST), f"packages/{package}", silent=True
        )


@nox.session(python=NEWEST, requires=["wheels"])
def demo(session: nox.Session) -> None:
    """Run the eight-schools demo, or one named after `--`, as in `nox -s demo -- stuck_chain`; `all` runs every one."""
    install(session, "demo")
    names = sorted(path.stem for path in (ROOT / "demo").glob("*.py") if "main(" in path.read_text(encoding="utf-8"))
    name, *options = session.posargs if session.posargs and session.posargs[0][0] != "-" else DEMO + session.posargs
    if name not in (*names, "all"):
        session.error(f"there is no demo {name!r}; there are {', '.join(names)}, and all")
    for each in names if name == "all" else [name]:
        session.run("python", f"demo/{each}.py", *options, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=sorted({FLOOR, NEWEST}, key=release), requires=["wheels"])
def demos(session: nox.Session) -> None:
    """Test that every demo finds what it says it does; what follows `--` goes to pytest."""
    install(session, "test")
    options = ("--import-mode=importlib", "--numprocesses=auto", "--override-ini=addopts=")
    session.run("pytest", *options, "tests/demo", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=PYTHONS, requires=["wheels"])
def tests(session: nox.Session) -> None:
    """Run pytest against the built wheels; what follows `--` goes to pytest."""
    install(session, "test")
    session.run("pytest", "--numprocesses=auto", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(python=NEWEST)
def types(session: nox.Session) -> None:
    """Check the packages' types with pyright."""
    session.install(*group(jax_for(session), "types"))
    session.run("pyright", *session.posargs)


@nox.session(python=NEWEST, requires=["wheels"])
def docs(session: nox.Session) -> None:
    """Build the documentation, execute its examples, and fail on any warning or undocumented name."""
    install(session, "docs")
    for builder in ("html", "doctest"):
        session.run("sphinx-build", "-W", "--keep-going", "-b", builder, "docs", f"docs/_build/{builder}")


@nox.session(python=NEWEST, requires=["wheels"])
def bench(session: nox.Session) -> None:
    """Compare the speed of jaxtap with that of jax-tap 0.3.1."""
    install(session)
    session.run("python", "bench/run.py", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=FLOOR, requires=["wheels"], name="oldest-blackjax")
def oldest_blackjax(session: nox.Session) -> None:
    """Look at the oldest BlackJAX that the adapter reads and that runs on the oldest JAX."""
    install(session, "blackjax-oldest")
    session.run(
        "pytest",
        "-W",
        "default",
        "tests/adapters/test_blackjax_versions.py",
        *session.posargs,
        env={"JAX_PLATFORMS": "cpu"},
    )


@nox.session(python=NEWEST, requires=["wheels"], name="bench-blackjax")
def bench_blackjax(session: nox.Session) -> None:
    """Measure what a warmup costs under a watch."""
    install(session, "bench")
    session.run("python", "bench/warmup.py", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=NEWEST, requires=["wheels"], name="bench-flax")
def bench_flax(session: nox.Session) -> None:
    """Measure what a training step costs under a monitor."""
    install(session, "bench")
    session.run("python", "bench/train_step.py", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=sorted({FLOOR, NEWEST}, key=release), requires=["wheels"])
def clients(session: nox.Session) -> None:
    """Run other libraries' programs, unmodified, under a lens."""
    install(session, "clients")
    session.run("python", "tests/clients", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=sorted({FLOOR, NEWEST}, key=release), requires=["wheels"])
def bits(session: nox.Session) -> None:
    """Test that no bit moves of 320 random programs that meet no condition stated in docs/concepts/bits.md."""
    install(session, "test")
    options = (
        "--import-mode=importlib",
        "--numprocesses=auto",
        "--override-ini=addopts=",
        "--override-ini=timeout=900",
    )
    session.run("pytest", *options, "tests/fidelity", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=sorted({FLOOR, NEWEST}, key=release), requires=["wheels"])
def fidelity(session: nox.Session) -> None:
    """Count how often a lens moves a bit, over 5,000 random programs or as many as is said after `--`."""
    install(session, "test")
    session.run("python", "-m", "fidelity", *session.posargs, env={"JAX_PLATFORMS": "cpu", "PYTHONPATH": "tests"})


@nox.session(python=NEWEST, requires=["wheels"])
def nightly(session: nox.Session) -> None:
    """Run the tests on last night's JAX."""
    install(session, "test", jax=("--pre", "--extra-index-url", NIGHTLY, "jax", "jaxlib"))
    session.run("pytest", "--numprocesses=auto", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=sorted({FLOOR, NEWEST}, key=release), requires=["wheels"])
def faults(session: nox.Session) -> None:
    """Try signals, kills, full disks, forks and failing functions many times, at random moments."""
    install(session, "test")
    session.run("python", "-m", "faults", *session.posargs, env={"JAX_PLATFORMS": "cpu", "PYTHONPATH": "tests"})


@nox.session(python=NEWEST, requires=["wheels"])
def soak(session: nox.Session) -> None:
    """Record 10^8 events and open 10^4 lenses, or as many as is said after `--`: memory stays flat, nothing is left."""
    install(session)
    session.run("python", "bench/soak.py", *session.posargs, env={"JAX_PLATFORMS": "cpu"})


@nox.session(python=NEWEST, requires=["wheels"], name="release-check")
def release_check(session: nox.Session) -> None:
    """Check wheels, metadata, links and changelog, and test the wheels where there is no repository."""
    install(session, "test", "release")
    wheels = sorted(map(str, DIST.glob("*.whl")))
    session.run("python", "release/check.py", str(DIST))
    session.run("twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    # W009: the core's wheel holds the command's package beside its own, on purpose.
    session.run("check-wheel-contents", "--ignore", "W009", *wheels)
    options = ("-W", "error", "--rootdir=.", "--config-file=/dev/null", "--import-mode=importlib")
    with tempfile.TemporaryDirectory() as name:
        tests = Path(name, "tests")
        shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
        with session.chdir(name):
            env = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tests)}
            session.run("pytest", *options, *OUTSIDE, *session.posargs, env=env)
