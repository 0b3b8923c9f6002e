"""Where something was written, in the form that events and reports have it."""

from __future__ import annotations

import os
import re
from typing import Any

import jax
from jax.extend import source_info_util

from jaxtap._jaxprs import function_source

# Frames of this package are not the user's.
source_info_util.register_exclusion(os.path.dirname(__file__))

_JAX = os.path.dirname(jax.__file__)


def source_of_body(body: Any, call_site: str) -> str:
    """`"file.py:42 (function)"` of a body, or of the user's call where the body is JAX's own, as in `lax.map`."""
    found = re.fullmatch(r"(.*) at (.*):(\d+)", function_source(body))
    if found and not found[2].startswith(_JAX):
        return f"{os.path.basename(found[2])}:{found[3]} ({found[1]})"
    return _short(call_site)


def source_of_call(source_info: Any) -> str:
    """`"file.py:42 (function)"` of the line that made an equation."""
    return _short(source_info_util.summarize(source_info))


def source_of_text(text: str) -> str:
    """`"file.py:42 (function)"` of what JAX writes as `"function at /path/file.py:42"`, or as a call site."""
    found = re.fullmatch(r"(.*) at (.*):(\d+)", text)
    return f"{os.path.basename(found[2])}:{found[3]} ({found[1]})" if found else _short(text)


def _short(call_site: str) -> str:
    found = re.fullmatch(r"(.*?):(\d+)(?::\d+)? \((.*)\)", call_site)
    return f"{os.path.basename(found[1])}:{found[2]} ({found[3]})" if found else call_site
