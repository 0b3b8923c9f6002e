"""Realising: when a marked loop is lowered, its steps, gates, lane masks and crossings are written out.

By then every transformation is done. Only settled state is read: the carry at the start of the next step,
and outputs from the stacked array that they were written to. What is read while it is being computed would
not be fused the way it is without a lens, and the program's own result would move by a bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Generator
from typing import Any

from jax.interpreters import mlir
from jax.interpreters import partial_eval as pe

from jaxtap import _active, _points
from jaxtap._announce import has_listeners, sends
from jaxtap._around import Around
from jaxtap._buffers import gathering
from jaxtap._devices import device_count, is_partitioned
from jaxtap._dispatch import leave_out, lightening
from jaxtap._gates import install as install_gates
from jaxtap._gates import is_gated
from jaxtap._jaxprs import (
    custom_jvp_call_p,
    custom_vjp_call_p,
    is_jaxpr,
    jit_p,
    remat_p,
    scan_p,
    while_p,
)
from jaxtap._liveness import keep_whole, remembering
from jaxtap._mark import has_marks, has_points, mark_p, strip
from jaxtap._retype import on_untyped
from jaxtap._scan import realise_scan
from jaxtap._seal import is_pure, unshared
from jaxtap._walk import is_plain, loop_rules, realise, walk
from jaxtap._while import realise_while


def _realising(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that realises marked loops and leaves all others to `rule`."""

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        with _loops.within():
            if not any(has_marks(value) for value in params.values() if is_jaxpr(value)):
                return rule(ctx, *args, **params)

            around = _outermost(ctx)

            def run(*values: Any) -> list[Any]:
                return realise(primitive, params, values, around)

            written = gathering(run) if around.gathers else run
            return mlir.lower_fun(on_untyped(written), multiple_results=True)(ctx, *args)

    return lower


class _Loops(threading.local):
    """How many loops are around what is being lowered in this thread."""

    depth = 0

    @contextlib.contextmanager
    def within(self) -> Generator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


_loops = _Loops()


def _in_place(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that writes out a `jit` in its caller where single points are seen in it.

    XLA inlines what a `jit` calls in any case. Before that, what leads to a value that the call is given cannot be
    seen from within, nor what leads to one that it returns from without: a lens with hooks marks those of all kinds.
    In a loop, marks are not read so, and a step is left as it is.
    """

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        if is_gated(params["jaxpr"]):
            return _lower_branch(rule, ctx, *args, **params)
        hooked = _active.has_hooks() and not _loops.depth
        if not is_plain(params) or not (_is_looked_into(params["jaxpr"]) or hooked):
            return rule(ctx, *args, **params)
        return mlir.lower_fun(_points.written_out(params["jaxpr"]), multiple_results=True)(ctx, *args)

    return lower


def _lower_branch(rule: Callable[..., Any], ctx: Any, *args: Any, **params: Any) -> Any:
    """Lower a branch that only some lanes take, outside of any loop: as it is, and a copy beside it for its events."""
    branch, around = params["jaxpr"], _outermost(ctx)
    if not is_pure(branch):
        run = on_untyped(lambda *values: walk(branch, values, around)[0])
        return mlir.lower_fun(run, multiple_results=True)(ctx, *args)
    if sends(branch):

        def send(*values: Any) -> list[Any]:
            walk(branch, unshared(values), dataclasses.replace(around, twin=True))
            return []

        mlir.lower_fun(on_untyped(send), multiple_results=True)(ctx, *args)
    return rule(ctx, *args, **{**params, "jaxpr": strip(branch)})


def _outermost(ctx: Any) -> Around:
    """The surroundings of what lies in no loop."""
    seals = ctx.module_context.platforms == ("cpu",)
    return Around(seals=seals, partitioned=is_partitioned(ctx), gathers=device_count(ctx) == 1)


def _is_looked_into(jaxpr: Any) -> bool:
    return has_points(jaxpr) and has_listeners(jaxpr)


def install() -> None:
    """Put the realising rules in front of JAX's own. Without a mark they pass everything on unchanged."""
    mark_p.def_impl(_points.run)
    install_gates()
    pe.dce_rules[mark_p] = leave_out
    mlir.register_lowering(mark_p, _points.lower, cacheable=False)
    for primitive, realise_loop in ((scan_p, realise_scan), (while_p, realise_while)):
        loop_rules[primitive] = realise_loop
        mlir.register_lowering(primitive, _realising(primitive, _present_rule(primitive)))
        pe.dce_rules[primitive] = lightening(remembering(primitive, pe.dce_rules.get(primitive, keep_whole)))
    # Not cached, an equation is lowered where it stands, and what leads to its operands can be seen. The text that
    # comes out is the same.
    mlir.register_lowering(jit_p, _in_place(_present_rule(jit_p)), cacheable=False)
    for primitive in (custom_jvp_call_p, custom_vjp_call_p, remat_p):
        mlir.register_lowering(primitive, _present_rule(primitive), cacheable=False)


def _present_rule(primitive: Any) -> Callable[..., Any]:
    # No public name gives the present rule; `tests/core/test_private.py` fails when this one moves.
    return mlir._lowerings[primitive].rule  # pyright: ignore[reportPrivateUsage] - see above
