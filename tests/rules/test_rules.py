"""Each rule finds the lines that are marked in one file, and nothing at all in another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jaxtap_command._rules import RULES, check

CASES = Path(__file__).parent / "cases"
MARK = "# found"


def read(name: str) -> str:
    return (CASES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("id", RULES)
def test_what_a_rule_finds(id: str) -> None:
    text = read(f"{id}_bad.py")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if MARK in line]
    found = [finding.line for finding in check(text, "bad.py", [id])]
    assert marked and sorted(set(found)) == marked


@pytest.mark.parametrize("id", RULES)
def test_what_no_rule_finds(id: str) -> None:
    assert [(f.line, f.id, f.message) for f in check(read(f"{id}_good.py"), "good.py")] == []


def test_twenty_rules_in_order() -> None:
    assert list(RULES) == [f"J{number:03}" for number in range(1, 21)]
    for rule in RULES.values():
        assert rule.title and rule.why.endswith(".") and rule.fix.endswith(".")
        assert rule.docs == f"docs/rules.md#{rule.id.lower()}"


BRANCH = "import jax\n@jax.jit\ndef f(x):\n    if x > 0:{comment}\n        return x\n    return -x\n"


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("", ["J001"]),
        ("  # jaxtap: ignore[J001]", []),
        ("  # jaxtap: ignore[J005, J001] - it is concrete here", []),
        ("  # jaxtap: ignore", []),
        ("  # jaxtap: ignore [j001]", []),
        ("  # jaxtap: ignore [J005]", ["J001"]),
        ("  # jaxtap: ignored", ["J001"]),
        ("  # jaxtap: ignore[J005]", ["J001"]),
    ],
)
def test_ignoring(comment: str, found: list[str]) -> None:
    assert [finding.id for finding in check(BRANCH.format(comment=comment), "f.py")] == found


def test_a_comment_in_a_string_ignores_nothing() -> None:
    text = 'import jax\n@jax.jit\ndef f(x):\n    return 1 if x > "# jaxtap: ignore" and x > 0 else 2\n'
    assert [finding.id for finding in check(text, "f.py")] == ["J001"]


def test_names_are_those_of_imports_not_of_variables() -> None:
    text = "import jax\ndef f(jax, key):\n    return jax.random.normal(key) + jax.random.normal(key)\n"
    assert check(text, "f.py") == []


@pytest.mark.parametrize(
    "imports",
    [
        "from somewhere import *",
        "try:\n    import numpy as random\nexcept ImportError:\n    import random",
        "def g():\n    from jax import random\ndef h():\n    import random",
    ],
)
def test_a_name_that_may_stand_for_more_than_one_thing(imports: str) -> None:
    text = f"import jax\n{imports}\n@jax.jit\ndef f(x):\n    return x + random.normal(x) + random.normal(x)\n"
    assert check(text, "f.py") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "match x:\n    case [1, *rest] if (y := rest):\n        pass\n    case _:\n        del y",
        "async def f(a, /, *b, c=1, **d):\n    async for x in a:\n        yield (await x)",
        "async def f():\n    async with a as b[0]:\n        pass",
        "try:\n    pass\nexcept* ValueError as e:\n    raise\nelse:\n    x: int\nfinally:\n    (a, *b), c = 1, 2",
        "class A[T]:\n    x = lambda self, y=1: (yield)\n    global z\n    @A\n    def f(self): nonlocal_ = 1"
        if sys.version_info >= (3, 12)
        else "",
        "import jax\nf = jax.jit(*fs, **options)\njax.jit()\njax.lax.scan()\njax.lax.scan(*fs)\njax.random.normal()\n",
        "import jax, functools\n@functools.partial(jax.jit, **options)\ndef f(x):\n    return x if x > 0 else -x",
        "import jax\nstatic = (0,)\ndef f(x):\n    return x if x > 0 else -x\ng = jax.jit(f, static_argnums=static)",
    ],
)
def test_odd_syntax(text: str) -> None:
    """Everything that Python can parse can be scanned, and what a rule cannot know it leaves alone."""
    assert check(text, "odd.py") == []


def test_loops_in_loops_take_no_time() -> None:
    nested = "".join("    " * depth + f"for i{depth} in x:\n" for depth in range(19))
    assert check(f"import jax\n{nested}{'    ' * 19}jax.random.normal(key)\n", "f.py")[0].id == "J005"


def test_rules_load_neither_jax_nor_numpy() -> None:
    code = "import sys, jaxtap_command._rules; print(sorted({'jax', 'numpy', 'jaxtap'} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
