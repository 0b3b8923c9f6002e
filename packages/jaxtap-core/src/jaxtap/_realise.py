"""Realising: when a marked loop is lowered, its steps, gates, lane masks and crossings are written out.

By then every transformation is done. Only settled state is read: the carry at the start of the next step,
and outputs from the stacked array that they were written to. What is read while it is being computed would
not be fused the way it is without a lens, and the program's own result would move by a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.interpreters import mlir

from jaxtap import _scan, _while  # noqa: F401 - they put their rules in place
from jaxtap._around import Around
from jaxtap._jaxprs import is_jaxpr, scan_p, while_p
from jaxtap._mark import has_marks
from jaxtap._walk import realise


def _realising(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that realises marked loops and leaves all others to `rule`."""

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        if not any(has_marks(value) for value in params.values() if is_jaxpr(value)):
            return rule(ctx, *args, **params)

        around = Around(seals=ctx.module_context.platforms == ("cpu",))

        def run(*values: Any) -> list[Any]:
            return realise(primitive, params, values, around)

        return mlir.lower_fun(run, multiple_results=True)(ctx, *args)

    return lower


def install() -> None:
    """Put the realising rules in front of JAX's own. Without a mark they pass everything on unchanged."""
    for primitive in (scan_p, while_p):
        # No public name gives the present rule; `tests/core/test_private.py` fails when this one moves.
        rule = mlir._lowerings[primitive].rule  # pyright: ignore[reportPrivateUsage] - see above
        mlir.register_lowering(primitive, _realising(primitive, rule))
