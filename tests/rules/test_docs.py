"""The page of the rules says what the rules say, and its examples are found and not found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxtap_command._rules import RULES, check

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (J\d+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
IMPORTS = """
from functools import partial
import time
import jax
import jax.numpy as jnp
import numpy as np
import optax
"""


def words(text: str) -> str:
    return " ".join(text.split())


def test_one_section_a_rule() -> None:
    assert list(SECTIONS) == list(RULES)


@pytest.mark.parametrize("id", RULES)
def test_section(id: str) -> None:
    section, rule = words(SECTIONS[id]), RULES[id]
    assert section.startswith(words(f"**{rule.title[0].upper()}{rule.title[1:]}.** {rule.why}"))
    assert words(rule.fix) in section


@pytest.mark.parametrize("id", RULES)
def test_examples(id: str) -> None:
    bad, good = re.findall(r"```python\n(.*?)```", SECTIONS[id], re.DOTALL)
    assert {finding.id for finding in check(IMPORTS + bad, "bad.py")} == {id}
    assert check(IMPORTS + good, "good.py") == []
