"""Where something was written, in the form that events and reports have it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import source_info_util

from jaxtap._jaxprs import function_source

# Frames of this package are not the user's.
source_info_util.register_exclusion(os.path.dirname(__file__))

_HERE = os.path.dirname(__file__) + os.sep
# `tests/core/test_private.py` fails where JAX's folders move.
_JAX = os.path.dirname(jax.__file__) + os.sep
_PRIVATE = os.path.join(_JAX, "_src")


def source_of_body(body: Any, call_site: str) -> str:
    """`"file.py:42 (function)"` of a body, or of the user's call where the body is JAX's own, as in `lax.map`."""
    found = re.fullmatch(r"(.*) at (.*):(\d+)", function_source(body))
    if found and not found[2].startswith(_JAX):
        return f"{os.path.basename(found[2])}:{found[3]} ({found[1]})"
    return _short(call_site)


# Where the functions of JAX's library are, in its own folder. What else is there calls functions for a user.
_LIBRARY = ("random", "prng", "numpy/", "scipy/", "nn/", "image/", "ops/", "third_party/", "lax/", "../experimental/")
_COMBINATORS = "lax/control_flow/"
# What stands for one equation until it is lowered, such as `searchsorted` in jax 0.12.
_LOWERED_LATER = "numpy/hijax"


def _parts_of_jax(source_info: Any) -> Iterator[str]:
    """The files of JAX between an equation and whoever called JAX, innermost first, as seen from its own folder."""
    for frame in source_info.traceback.frames if source_info.traceback else ():
        if frame.file_name.startswith(_HERE):
            continue
        if not frame.file_name.startswith(_JAX):
            return
        yield os.path.relpath(frame.file_name, _PRIVATE).replace(os.sep, "/")


def is_of_jax(source_info: Any) -> bool:
    """Whether a function of JAX's library, such as `jax.random.gamma`, has written an equation, not its caller."""
    parts = _parts_of_jax(source_info)
    return any(part.startswith(_LIBRARY) and not part.startswith(_COMBINATORS) for part in parts)


def is_lowering_of_jax(source_info: Any) -> bool:
    """Whether an equation belongs to what one of JAX's own equations is written out as when it is lowered."""
    return any(part.startswith(_LOWERED_LATER) for part in _parts_of_jax(source_info))


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
