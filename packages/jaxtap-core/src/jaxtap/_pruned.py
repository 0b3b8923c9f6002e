"""What `lax.scan` and `lax.while_loop` take out of a loop before they bind it.

Both move carry leaves that the body passes through unchanged to the constants, and `scan` forwards outputs
that merely are inputs. No public name says which, yet a user counts the leaves as written. So this file
reads local variables of the two functions' frames. Where a name is gone, leaves are shown as they were bound,
and `tests/core/test_private.py` fails.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax

_MODULE = "jax._src.lax.control_flow.loops"


@dataclasses.dataclass(frozen=True)
class Pruned:
    """What was taken out of a loop.

    Attributes:
      moved: for each carry leaf as written, whether it was moved to the constants.
      forwarded: for each output leaf as written, the index among kept carry and xs that it forwards, or None.
      carry_treedef: structure of the carry.
      output_treedef: structure of a step's outputs, None for `while_loop`.
      output_names: name of each output leaf.
    """

    moved: tuple[bool, ...]
    forwarded: tuple[int | None, ...] = ()
    carry_treedef: Any = None
    output_treedef: Any = None
    output_names: tuple[str, ...] = ()


def pruned(depth: int) -> Pruned | None:
    """What the function `depth` frames up, about to bind a loop, has taken out; None if it is not one of the two."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame and frame.f_back
    if frame is None or frame.f_globals.get("__name__") != _MODULE:
        return None
    try:
        if frame.f_code.co_name == "scan":
            return _of_scan(frame.f_locals)
        if frame.f_code.co_name == "while_loop":
            return _of_while(frame.f_locals)
    except (KeyError, AttributeError, TypeError, ValueError):
        return None
    return None


def _of_scan(names: dict[str, Any]) -> Pruned:
    carry, ys = names["out_avals"].unflatten()
    with_paths, output_treedef = jax.tree_util.tree_flatten_with_path(ys)
    return Pruned(
        moved=tuple(map(bool, names["move_to_const"])),
        forwarded=tuple(names["ext_to_ext_fwd"]),
        carry_treedef=jax.tree_util.tree_structure(carry),
        output_treedef=output_treedef,
        output_names=tuple("ys" + jax.tree_util.keystr(path) for path, _ in with_paths),
    )


def _of_while(names: dict[str, Any]) -> Pruned:
    return Pruned(
        moved=tuple(map(bool, names["move_to_const"])),
        carry_treedef=jax.tree_util.tree_structure(names["body_out_avals"].unflatten()),
    )
