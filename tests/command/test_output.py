"""Text with and without rich, on a terminal and into a file."""

from __future__ import annotations

import importlib.util
import io
import sys
from typing import Any

import pytest

from jaxtap_command import _output

LINE = "train.py:3:8: J001 `x > 0` is [bold]true[/bold] :smile:"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("rich", [True, False])
def test_the_words_are_the_same(monkeypatch: pytest.MonkeyPatch, terminal: bool, rich: bool) -> None:
    if rich and importlib.util.find_spec("rich") is None:
        pytest.skip("rich is not installed")
    if not rich:

        def without_rich(name: str, *_: Any) -> Any:
            assert name == "rich"

        monkeypatch.setattr(_output.importlib.util, "find_spec", without_rich)
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    _output.say(LINE)
    _output.table(["a", "b"], [[1, "long"], ["wide", 2]])
    assert out.getvalue() == f"{LINE}\na     b\n1     long\nwide  2\n"
