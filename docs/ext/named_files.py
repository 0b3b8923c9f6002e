"""The role `{core}`, a file of the core that must exist, and the directive `core-files`, which lists all of them.

The list is what each file says of itself in the first line of its docstring.
"""

import ast
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)

CORE = Path(__file__).parents[2] / "packages" / "jaxtap-core" / "src" / "jaxtap"


class CoreRole(SphinxRole):
    """A file of the core."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if not (CORE / self.text).is_file():
            logger.warning(f"the core has no file {self.text}", location=self.get_location())
        return [nodes.literal("", self.text)], []


class CoreFiles(SphinxDirective):
    """All files of the core, each with the first line of its docstring."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for path in sorted(CORE.glob("_[a-z]*.py")):
            self.env.note_dependency(str(path))
            said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if said:
                lines.append(f"- `{path.name}`: {said.splitlines()[0]}")
        parent = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.env.docname), self.content_offset, parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("core", CoreRole())
    app.add_directive("core-files", CoreFiles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
