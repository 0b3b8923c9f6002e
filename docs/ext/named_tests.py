"""The role `{test}`: the name of a test, linked to its source. A test that does not exist is a warning.

`` {test}`core/test_vmap.py::test_finished_lanes_are_silent` `` is a path below tests/, and a function in it.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

logger = logging.getLogger(__name__)

TESTS = Path(__file__).parents[2] / "tests"


def line_of(path: Path, function: str) -> int | None:
    """The line on which a file defines a function; None if it does not."""
    if not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((i for i, line in enumerate(lines, 1) if re.match(rf"def {re.escape(function)}\(", line)), None)


def page_of(file: str) -> str:
    """The page that shows a file of tests."""
    return f"tests/{file.removesuffix('.py')}"


class TestRole(SphinxRole):
    """Links to a test."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        file, _, function = self.text.partition("::")
        code = nodes.literal("", f"tests/{self.text}", classes=["test"])
        line = line_of(TESTS / file, function)
        if line is None:
            logger.warning(f"there is no test {self.text!r} below tests/", location=self.get_location())
            return [code], []
        builder = self.env.app.builder
        if builder.format != "html":
            return [code], []
        self.env.note_dependency(str(TESTS / file))
        self.env.metadata[self.env.docname].setdefault("tests", set()).add(file)
        up = "../" * self.env.docname.count("/")
        link = nodes.reference("", "", code, refuri=f"{up}{page_of(file)}.html#line-{line}", internal=True)
        return [link], []


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file that holds a test that is named."""
    formatter = HtmlFormatter(linenos="inline", lineanchors="line", anchorlinenos=False, wrapcode=True)
    named: set[str] = set().union(*(meta.get("tests", ()) for meta in app.env.metadata.values()))
    for file in sorted(named):
        code = highlight((TESTS / file).read_text(encoding="utf-8"), PythonLexer(), formatter)
        title = html.escape(f"tests/{file}")
        body = f'<h1>{title}</h1><div class="highlight-python notranslate">{code}</div>'
        yield page_of(file), {"title": title, "body": body, "parents": []}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("test", TestRole())
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
