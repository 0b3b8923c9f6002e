"""Fail the build when a page holds a block of Python that is not executed and does not say why.

Executed are `{doctest}`, `{testcode}` and `{code-cell}` blocks. A plain block of Python needs, right before it, or once
for a page at its top, a comment: `% not executed: why`.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

_BLOCK = re.compile(r"^(?P<before>[^\n]*)\n+```(?:\{code(?:-block)?\} ?)?(?:python|py|pycon)\b", re.MULTILINE)
_REASON = "% not executed: "


def check(app: Sphinx, docname: str, source: list[str]) -> None:
    text = source[0]
    if text.startswith(_REASON):
        return
    for block in _BLOCK.finditer(text):
        if not block["before"].startswith(_REASON):
            line = text.count("\n", 0, block.end()) + 1
            page = Path(app.env.doc2path(docname))
            logger.warning(
                "Python that is not executed: make it a {testcode} or {doctest} block, or say why in a line "
                f"'{_REASON}...' before it.",
                location=f"{page}:{line}",
            )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
