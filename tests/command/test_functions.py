"""The subcommands that are about one function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command.shell import PROGRAM, answer, complaint, environment, run, text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_probe(folder: Path) -> None:
    report = answer("probe", "program:step", "--args", "jnp.ones((2, 3))", cwd=folder)
    assert report["function"] == "program:step" and report["source"].endswith("(step)")
    assert report["wrapper"] == {"static": {}} and report["saved"] == []
    assert report["traced"]["inputs"] == {"x": "f32[2,3]"} and report["traced"]["outputs"] == {"result": "f32[]"}
    assert report["traced"]["equations"]["sin"] == 1 and min(report["seconds"].values()) > 0
    assert report["compiled"]["memory"]["arguments"] == 24 and report["compiled"]["cost"]["flops"] > 0
    assert report["compiled"]["memory"]["code"] == "backend does not say"
    assert "stablehlo.sine" in report["texts"]["2-lowered.stablehlo.mlir"]
    assert "HloModule" in report["texts"]["3-compiled.hlo.txt"]


def test_probe_as_text(folder: Path) -> None:
    page = text("probe", "program:power", "--args", "jnp.ones(3), n=2", "--save", "out", cwd=folder)
    wrapper, static, traced, x, *rest = page.splitlines()
    assert wrapper.startswith("wrapper   jit of power  program.py:") and traced.startswith("traced  ")
    assert (static, x) == ("    static n: 2", "    in  x: f32[3] donated")
    assert any(line.startswith("    cost before optimisation: flops ") for line in rest)
    assert "importing" not in page and "tracing" not in page
    written = [line.removeprefix("wrote ") for line in rest if line.startswith("wrote ")]
    assert len(written) == 7 and all((folder / path).read_text() for path in written)


CASES = """[(jnp.ones(3), 2), (jnp.ones(3), 2), (jnp.ones(4), 2), (jnp.ones(4), 3),
(jnp.ones(3, int), 2), (1.0, 2), (2.0, 2)]"""


def test_recompiles(folder: Path) -> None:
    cases = answer("recompiles", "program:power", "--cases", CASES, cwd=folder)["cases"]
    assert [case["what"] for case in cases] == ["traced", "cached", "traced", "traced", "traced", "traced", "cached"]
    assert [case["why"] for case in cases] == [
        ["first call"],
        [],
        ["argument x f32[3] → f32[4]"],
        ["static argument n 2 → 3"],
        ["argument x f32[3] → i32[3]"],
        ["argument x f32[4] → f32[]"],
        [],
    ]
    assert cases[3]["arguments"] == {"x": "f32[4]", "n": "3"}
    assert all((case["seconds"] > 0) == (case["what"] == "traced") for case in cases)


def test_recompiles_without_static_arguments(folder: Path) -> None:
    cases = "[(dict(w=1.0),), (dict(w=2.0),), (dict(w=jnp.ones(2)),), (dict(w=jnp.ones(2), b=1),), 1.0]"
    (folder / "tree.py").write_text("import jax\ndef f(p):\n    return jax.tree.leaves(p)\n")
    rows = answer("recompiles", "tree:f", "--cases", cases, cwd=folder)["cases"]
    assert [row["what"] for row in rows] == ["traced", "cached", "traced", "traced", "traced"]
    assert rows[2]["why"] == ["argument p['w'] f32[] → f32[2]"]
    assert rows[3]["why"] == ["argument p {'w': *} → {'b': *, 'w': *}"]
    assert rows[4]["arguments"] == {"p": "f32[]"}


def test_recompiles_as_text(folder: Path) -> None:
    page = text("recompiles", "program:power", "--cases", CASES, cwd=folder).splitlines()
    assert page[0].split() == ["case", "what", "seconds", "why"]
    assert page[-1] == "program:power: 5 of 7 calls traced or compiled"


OTHERS = """
import jax, jax.numpy as jnp

@jax.jit
def inner(x):
    return x + 1

def outer(x):
    return inner(inner(x)) @ jnp.eye(3)

@jax.jit
def watched(x):
    jax.debug.callback(lambda v: inner(v), x)
    return x

class Model:
    def __call__(self, x):
        return x * x.shape[0]

model = Model()

def changing(x):
    return x

called = jax.jit(lambda x: x)
called(1.0)
"""


@pytest.mark.parametrize(
    ("function", "cases", "what", "last_why"),
    [
        ("outer", "[jnp.ones(3), jnp.ones(3)]", ["traced", "cached"], "first call"),
        ("watched", "[jnp.ones(3), jnp.ones(2)]", ["traced", "traced"], "argument x f32[3] → f32[2] (last batch?)"),
        ("model", "[jnp.ones(3), jnp.ones(2)]", ["traced", "traced"], "argument x f32[3] → f32[2] (last batch?)"),
        ("called", "[1.0, 1]", ["cached", "traced"], "first call"),
    ],
)
def test_recompiles_tells_of_one_function(
    folder: Path, function: str, cases: str, what: list[str], last_why: str
) -> None:
    """Not of what it calls in turn, nor of what was traced before."""
    (folder / "others.py").write_text(OTHERS)
    rows = answer("recompiles", f"others:{function}", "--cases", cases, cwd=folder)["cases"]
    assert [row["what"] for row in rows] == what
    assert [row["why"] for row in rows if row["why"]][-1] == [last_why]


def test_recompiles_with_arguments_by_name(folder: Path) -> None:
    cases = "[(jnp.ones(3), 2), call(jnp.ones(3), n=2), call(n=3, x=jnp.ones(3)), call(jnp.ones(3), n=2)]"
    rows = answer("recompiles", "program:power", "--cases", cases, cwd=folder)["cases"]
    assert [row["what"] for row in rows][1:] == ["traced", "traced", "cached"]
    assert rows[1]["why"] == ["argument n by position → by keyword"]


def test_recompiles_goes_on_after_a_call_that_raised(folder: Path) -> None:
    (folder / "others.py").write_text(OTHERS)
    cases = "[jnp.ones(3), 1.0, jnp.ones(2)]"
    rows = answer("recompiles", "others:model", "--cases", cases, cwd=folder, code=1)["cases"]
    assert [row["what"] for row in rows] == ["traced", "raised", "traced"]
    assert rows[1]["why"] == ["IndexError: tuple index out of range"]


@pytest.mark.parametrize("subcommand", ["bench", "profile"])
def test_a_function_that_uses_up_its_arguments(folder: Path, subcommand: str) -> None:
    report = answer(subcommand, "program:power", "--args", "jnp.ones(3), n=2", "--repeat", "2", cwd=folder)
    assert report["repeat"] == 2


def test_bench(folder: Path) -> None:
    report = answer("bench", "program:step", "--args", "jnp.ones((20, 30))", "--repeat", "5", cwd=folder)
    assert report["compile_seconds"] > 0 and report["repeat"] == 5
    assert report["arguments_to_device"]["bytes"] == 2400 and report["results_to_host"]["bytes"] == 4
    for key in ("call", "arguments_to_device", "results_to_host"):
        assert 0 < report[key]["min"] <= report[key]["median"] <= report[key]["max"]


def test_bench_as_text(folder: Path) -> None:
    page = text("bench", "program:keyed", "--args", "jax.random.key(0), {'w': 1.0}", "--repeat", "1", cwd=folder)
    assert page.startswith("program:keyed on ") and "compile  " in page and "call, of 1" in page


def test_profile(folder: Path) -> None:
    report = answer("profile", "program:step", "--args", "jnp.ones(3)", "--out", "trace", "--repeat", "1", cwd=folder)
    assert any(path.endswith(".xplane.pb") for path in report["files"])
    assert all((folder / path).is_file() for path in report["files"])
    assert "xprof" in report["open"]["xprof"] and "ui.perfetto.dev" in report["open"]["perfetto"]


def test_profile_as_text(folder: Path) -> None:
    page = text("profile", "program:step", "--args", "jnp.ones(3)", "--repeat", "1", cwd=folder)
    assert "open with xprof: pip install xprof; xprof --logdir jaxtap-profile" in page


@pytest.mark.parametrize(
    ("function", "args", "outcome"),
    [
        ("step", "jnp.ones((20, 30))", "returned float32[]"),
        ("power", "jnp.array([1.0, jnp.nan]), n=2", "returned float32[2]"),
        ("keyed", "jax.random.key(3), {'w': jnp.ones(3)}", "returned float32[3]"),
        ("branch", "1.0", "raised TracerBoolConversionError"),
    ],
)
def test_mre(folder: Path, function: str, args: str, outcome: str) -> None:
    report = answer("mre", f"program:{function}", "--args", args, cwd=folder)
    assert report["reproduced"] and report["here"].startswith(outcome) and report["script_did"].startswith(outcome)
    script = (folder / f"mre_{function}.py").read_text()
    assert f"\ndef {function}(" in script and "import program" not in script
    assert "def other" not in script and "unused" not in script and "number = 3" not in script
    assert script.count("import jax\n") == 1 and script.count("import jax.numpy as jnp\n") <= 1
    assert "\njax.config" not in script.split('"""', 2)[1] or "JAX_PLATFORMS=cpu" in script


def test_mre_stands_alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = text("mre", "program:step", "--args", "jnp.ones(3)", "--out", "one.py", cwd=folder)
    assert page.splitlines()[-1] == "one.py returned float32[]: reproduced"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "one.py").write_text((folder / "one.py").read_text())
    command = [sys.executable, "one.py"]
    done = subprocess.run(command, cwd=elsewhere, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "returned float32[]"


def test_mre_of_a_method(folder: Path) -> None:
    (folder / "others.py").write_text(OTHERS)
    report = answer("mre", "others:model.__call__", "--args", "jnp.ones(3)", cwd=folder)
    script = (folder / report["script"]).read_text()
    assert report["reproduced"] and "class Model:" in script and "import others" not in script
    assert "jax.jit(model.__call__)(" in script and "def inner" not in script


def test_mre_that_does_something_else(folder: Path) -> None:
    """What hangs on the arguments' values is not in a script that has only their shapes."""
    (folder / "fragile.py").write_text(
        "import jax\nfrom program import number\n\ndef f(x):\n    return x\n\n"
        "if jax.__name__ == 'jax':\n    def f(x):\n        import sys\n"
        "        if 'fragile' in sys.modules:\n            raise ValueError('only here')\n        return x\n"
    )
    report = answer("mre", "fragile:f", "--args", "1.0", cwd=folder, code=1)
    assert not report["reproduced"] and report["here"] == "raised ValueError: only here"


def test_mre_keeps_what_is_not_its_own(folder: Path) -> None:
    (folder / "mre_step.py").write_text("mine")
    assert "is not of this command's making" in complaint("mre", "program:step", "--args", "1.0", cwd=folder)
    assert (folder / "mre_step.py").read_text() == "mine"


SUBCOMMANDS = ("probe", "bench", "profile", "mre")


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_bad_input_for_each(folder: Path, subcommand: str) -> None:
    done = run(subcommand, "missing:f", cwd=folder)
    told = f"jaxtap {subcommand}: no module named 'missing': run from the folder that holds it, or install it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize(
    ("target", "args", "told"),
    [
        ("program", "", "'program' is not MODULE:FUNCTION: write it as train:step"),
        ("program.py:step", "", "'program.py' is a path: name the module, program:step"),
        ("program:missing", "", "program has no 'missing'; it has: branch, helper, keyed, other, power, step"),
        ("program:number", "", "program:number is a int: name a function"),
        ("program:step", "1.0,,", "--args '1.0,,' is no Python expression: quote it, as --args 'jnp.ones(3)'"),
        ("program:step", "nothing", "--args 'nothing' raised NameError: name 'nothing' is not defined"),
        ("program:step", "", "program:step needs arguments (x): give them with --args 'EXPR, ...'"),
        ("program:step", "1, z=2", "does not take these arguments: got an unexpected keyword argument 'z'"),
        ("needs:f", "", "needs needs the module 'not_installed', which is not installed: install it"),
        ("wrong:f", "", "importing wrong raised SyntaxError"),
        ("leaves:f", "", "importing leaves raised SystemExit: 3: mend that first"),
    ],
)
def test_bad_input(folder: Path, target: str, args: str, told: str) -> None:
    (folder / "needs.py").write_text("import not_installed\n")
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "leaves.py").write_text("raise SystemExit(3)\n")
    assert told in complaint("probe", target, "--args", args, cwd=folder)


def test_bad_cases(folder: Path) -> None:
    assert "no module named 'missing'" in complaint("recompiles", "missing:f", "--cases", "[1]", cwd=folder)
    assert "'x' is not defined" in complaint("recompiles", "program:step", "--cases", "[(x, 2)]", cwd=folder)
    assert "is no list of calls" in complaint("recompiles", "program:step", "--cases", "3", cwd=folder)
    assert "is no list of calls" in complaint("recompiles", "program:step", "--cases", "[]", cwd=folder)
    assert "no Python expression" in complaint("recompiles", "program:step", "--cases", "[", cwd=folder)
    assert "does not take" in complaint("recompiles", "program:step", "--cases", "[(1, 2, 3)]", cwd=folder)


def test_bad_options(folder: Path) -> None:
    call = ("program:step", "--args", "1.0")
    assert "time one call at least" in complaint("bench", *call, "--repeat", "0", cwd=folder)
    assert "trace one call at least" in complaint("profile", *call, "--repeat", "0", cwd=folder)
    assert "is a file: name a folder" in complaint("profile", *call, "--out", "program.py", cwd=folder)
    assert "there is no folder" in complaint("mre", *call, "--out", "not/there.py", cwd=folder)
    assert "name a file" in complaint("mre", *call, "--out", ".", cwd=folder)
    assert "name another folder" in complaint("profile", *call, "--out", "program.py/x", cwd=folder)
    assert "name another folder" in complaint("probe", *call, "--save", "program.py", cwd=folder)


@pytest.mark.parametrize("subcommand", ["probe", "bench", "profile"])
def test_a_function_that_fails(folder: Path, subcommand: str) -> None:
    """That is no bad input, and has an exit code of its own."""
    (folder / "leaves.py").write_text("def f(x):\n    raise SystemExit(4)\n")
    assert complaint(subcommand, "leaves:f", "--args", "1.0", cwd=folder, code=1).endswith(": SystemExit: 4")
    told = complaint(subcommand, "program:branch", "--args", "1.0", cwd=folder, code=1)
    assert told.startswith(f"jaxtap {subcommand}: program:branch raised while ") and "TracerBoolConversionError" in told
