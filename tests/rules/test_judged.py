"""What the rules find in other libraries was read, line by line; at most 1 in 10 may be wrong.

`judged.json` holds the verdicts: "right" where the finding is true of the code, whether or not it matters there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import pytest

from jaxtap_command._rules import check

JUDGED = json.loads((Path(__file__).parent / "judged.json").read_text(encoding="utf-8"))
CORPUS = {"blackjax", "optax", "flax"}
MOST_WRONG = 0.1


def folder(package: str) -> Path:
    """Where a package is installed, or a skip where it is not in a version that was judged."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    if version not in JUDGED["versions"][package]:
        pytest.skip(f"{package} {version} has not been judged")
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def verdicts(package: str) -> dict[tuple[str, int, str], str]:
    found = JUDGED["findings"]
    return {(f["path"], f["line"], f["id"]): f["verdict"] for f in found if f["path"].startswith(f"{package}/")}


@pytest.mark.parametrize("package", JUDGED["versions"])
def test_each_finding_is_judged(package: str) -> None:
    root = folder(package)
    found: set[tuple[str, int, str]] = set()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root.parent).as_posix()
        found |= {(name, f.line, f.id) for f in check(path.read_text(encoding="utf-8"), name)}
    assert found == set(verdicts(package))


@pytest.mark.parametrize("packages", [CORPUS, set(JUDGED["versions"]) - CORPUS], ids=["the corpus", "others"])
def test_share_that_is_wrong(packages: set[str]) -> None:
    judged = [verdict for package in packages for verdict in verdicts(package).values()]
    assert len(judged) >= 20 and set(judged) <= {"right", "wrong"}
    assert judged.count("wrong") <= MOST_WRONG * len(judged)


def test_each_verdict_has_a_reason() -> None:
    assert all(f["reason"].endswith(".") for f in JUDGED["findings"])
