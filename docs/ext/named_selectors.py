"""The directive `selectors`: the named selectors of a package, each with a sentence and where it looks.

Its argument is the package, its content a line `name: sentence` for each. All of them, and no others, must be there.
"""

import importlib
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def places(selector: Any) -> str:
    """The fields in which a selector looks, in order of preference."""
    fields = getattr(selector, "fields", ())
    texts = [f"``{holder}.{field}``" if holder else f"``{field}`` by name alone" for holder, field in fields]
    return f"Looks for {', '.join(texts)}." if texts else ""


class Selectors(SphinxDirective):
    """Documents the named selectors of a package."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        package = importlib.import_module(self.arguments[0])
        there = {name for name in package.__all__ if hasattr(getattr(package, name), "positions")}
        said = dict(line.split(": ", 1) for line in self.content if line.strip())
        if there != set(said):
            raise self.error(f"selectors of {package.__name__} that are there or named, not both: {there ^ set(said)}")
        lines: list[str] = [f".. py:currentmodule:: {package.__name__}", ""]
        for name, sentence in said.items():
            lines += [f".. py:data:: {name}", "", f"   {sentence} {places(getattr(package, name))}", ""]
        parent = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.env.docname), self.content_offset, parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("selectors", Selectors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
