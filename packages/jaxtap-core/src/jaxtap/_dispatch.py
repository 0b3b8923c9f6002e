"""Programs that JAX calls as fast as without a lens, and how to wait for them.

JAX calls a program without effects from C++, one with effects from Python, which takes a tenth of the time that a
small network's training step does. The effect of a mark keeps it in the program while JAX leaves out what is not used.
The last time that JAX does so is right before it lowers the program: from there on the effect serves nothing, as the
host call says of itself that it has side effects. No public name tells that this is that time, so this file reads the
names of functions on the stack. Where those are gone, programs keep their effects and are called from Python, and
`tests/core/test_private.py` fails.

Without effects, `jax.effects_barrier()` does not wait for a program. So only marks of lenses with hooks on a library
lose theirs: those belong to a watch, which waits for itself. Where there are several devices, none does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxtap import _active
from jaxtap._guard import Guard
from jaxtap._jaxprs import EFFECT, inner, subjaxprs
from jaxtap._mark import has_marks, is_mark, strip
from jaxtap._provenance import frames

_MODULE = "jax._src.interpreters.pxla"
_LAST = "prune_unused_inputs"
# What stands between that and the rule of an equation, also of one in a called function.
_BETWEEN = frozenset({"_dce_jaxpr", "dce_jaxpr", "dce_jaxpr_consts", "dce_jaxpr_pjit_rule", "_dce_jaxpr_pjit"})

_guard = Guard()


class _Programs:
    """Whether there are programs that `jax.effects_barrier()` does not wait for, and what does."""

    def __init__(self) -> None:
        self.are_there = False

    def wait(self) -> None:
        """Wait for those that this thread has called.

        A device runs the programs that one thread calls one after the other, so it is enough to wait for one that is
        called now. JAX waits for effects by the same rule.
        """
        if not self.are_there:
            return
        try:
            jax.block_until_ready([_call(program, argument) for program, argument in _behind()])
        except Exception as error:  # noqa: BLE001 - a device that is lost has told so elsewhere
            _guard.failed("waiting for a program", error)


programs = _Programs()


def _call(program: Any, argument: Any) -> Any:
    # What is compiled refuses to be called without jit, where an operation is compiled all the same.
    return _active.unseen(lax.neg, argument) if jax.config.jax_disable_jit else program(argument)


@functools.cache
def _behind() -> list[tuple[Any, Any]]:
    """A small program for each device, and what to call it with."""
    # Ctrl-C comes to the main thread, and would leave there what is set while these are made.
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_active.unseen, _small_programs).result()
    except RuntimeError:
        # While Python ends, no thread begins.
        return _active.unseen(_small_programs)


def _small_programs() -> list[tuple[Any, Any]]:
    # Whatever the user's program forbids is not asked of these.
    with jax.disable_jit(False), jax.transfer_guard("allow"):
        arguments = [jax.device_put(np.int32(0), device) for device in _devices()]
        return [(jax.jit(lax.neg).lower(argument).compile(), argument) for argument in arguments]


def _devices() -> list[Any]:
    """Those that a program can be on: the processor is there beside any other."""
    return list(dict.fromkeys([*jax.local_devices(), *jax.local_devices(backend="cpu")]))


@functools.cache
def _is_alone() -> bool:
    """Whether no program is on several devices: those are not in one order with programs on one."""
    return jax.device_count() == 1 == len(jax.local_devices(backend="cpu"))


def leave_out(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Any]:
    """The rule of marks for leaving out what is not used: they stay, in the end without their effect."""
    eqn = rest[-1]
    return [True] * len(eqn.invars), without_effect(eqn) if _is_waited_for(eqn) and is_last(2) else eqn


def without_effect(eqn: Any) -> Any:
    """An equation whose effect was that of marks."""
    programs.are_there = True
    return eqn.replace(effects=eqn.effects - {EFFECT})


def lightening(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of loops for leaving out what is not used, which in the end takes the effect of the marks in them."""

    def leave_out_of_loop(used: Sequence[bool], *rest: Any) -> Any:
        needed, eqn = rule(used, *rest)
        if eqn is None or EFFECT not in eqn.effects or not is_last(2):
            return needed, eqn
        bodies = [sub for sub in subjaxprs(eqn) if has_marks(sub)]
        own = any(EFFECT in inner(strip(sub)).effects for sub in subjaxprs(eqn))
        return needed, without_effect(eqn) if bodies and not own and all(map(_is_all_waited_for, bodies)) else eqn

    return leave_out_of_loop


def _is_waited_for(mark: Any) -> bool:
    return all(key.view.hooks for key in mark.params["lenses"])


def _is_all_waited_for(jaxpr: Any) -> bool:
    return all(
        _is_waited_for(eqn) if is_mark(eqn) else all(map(_is_all_waited_for, subjaxprs(eqn)))
        for eqn in inner(jaxpr).eqns
    )


def is_last(depth: int) -> bool:
    """Whether JAX is about to lower the program that an equation is in, asked in the rule so many frames up."""
    # With checks, JAX compares the effects of equations with those of their primitives.
    if jax.config.jax_enable_checks or not _is_alone():
        return False
    frame = next((frame for frame in frames(depth + 1) if frame.f_code.co_name not in _BETWEEN), None)
    return frame is not None and frame.f_code.co_name == _LAST and frame.f_globals.get("__name__") == _MODULE
