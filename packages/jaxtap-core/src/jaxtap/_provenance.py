"""Who has bound a primitive: code that someone wrote, or a rule of JAX's; and what the code is being traced for.

No public name tells, so this file reads the names of functions on the stack, and what JAX's tracing function
says that it traces for. Where those names are gone, loops are seen as before, primitives outside of loops are
not, and `tests/core/test_private.py` fails.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator, Sequence
from types import FrameType

from jax.extend import source_info_util
from jax.interpreters import mlir

# Between a rule of JAX's and the primitives that it binds stands one of these.
_RULES = ("process_primitive", "eval_jaxpr", "backward_pass")
# A function that is called where its equation stands is traced for these.
_CALLED = ("jit", "custom_jvp", "custom_vjp", "shard_map", "pmap", "make_jaxpr", "jaxpr")
# A body that jaxtap looks through when its loop, branch or checkpoint is bound is traced for these.
_ENTERED = (*_CALLED, "scan", "while", "fori", "cond", "switch", "checkpoint", "map", "associative")
# Flax traces the body of `nn.scan` once more than it runs it, and requires that nothing in it have an effect.
_DISCARDED = ("flax scan",)

_HERE = os.path.dirname(__file__)
_NO_ONE = ("contextlib", "functools", "weakref")


def in_lowering() -> bool:
    """Whether JAX is lowering: the loops that lowering rules bind are no one's program."""
    return mlir.ir.Context.current is not None


def is_recomputation() -> bool:
    """Whether checkpoint is running a forward pass again, which has been announced already."""
    return "rematted_computation" in str(source_info_util.current_name_stack())


def frames(depth: int) -> Iterator[FrameType]:
    """The frames on the stack, innermost first, from the one so many calls above that of whoever asks."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame and frame.f_back
    while frame is not None:
        yield frame
        frame = frame.f_back


def _traced_for(frame: FrameType) -> str | None:
    """What a frame of JAX's tracing function traces for; None for any other frame."""
    if not frame.f_code.co_name.startswith("trace_to_jaxpr"):
        return None
    if not frame.f_globals.get("__name__", "").startswith("jax."):
        return None
    names = frame.f_locals
    info = getattr(names.get("fun"), "debug_info", None) or names.get("debug_info") or names.get("dbg")
    return getattr(info, "traced_for", "")


def is_discarded() -> bool:
    """Whether what is being traced will be thrown away by a library that checks it first."""
    return any(_traced_for(frame) in _DISCARDED for frame in frames(1))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where someone's code binds a primitive.

    Attributes:
      identity: the instructions of the frames between them, which tell it apart from other places.
      source: the line of that code, as `"file.py:42 (function)"`.
    """

    identity: str
    source: str


def caller_of(depth: int) -> Place:
    """The place, and the line, that a function `depth` frames up is called from."""
    frame = next(frames(depth + 1))
    return Place(f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}+{frame.f_lasti}", _line(frame))


def caller_outside(depth: int, packages: Sequence[str]) -> Place:
    """As `caller_of`, passing over the code of some packages, of jaxtap's own and of Python's context managers."""
    passed = (*packages, *_NO_ONE, "jax", "jaxtap", "jaxtap_blackjax", "jaxtap_flax", "jaxtap_optax")
    for frame in frames(depth + 1):
        if frame.f_globals.get("__name__", "").split(".")[0] not in passed:
            return Place(f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}+{frame.f_lasti}", _line(frame))
    return caller_of(depth + 1)


def _line(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} ({frame.f_code.co_name})"


def place(depth: int) -> Place | None:
    """Where someone's code binds a primitive outside of any body.

    Args:
      depth: how many frames up the primitive is bound.

    Returns:
      None if a rule of JAX's binds it, or if it lies in a body that is looked through as a whole.
    """
    calls: list[str] = []
    source = ""
    traced = False
    for frame in frames(depth + 1):
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        if code.co_filename.startswith(_HERE) or module in _NO_ONE:
            continue
        purpose = _traced_for(frame)
        if purpose is not None:
            if not purpose.startswith(_ENTERED if traced else _CALLED):
                return None
            traced = True
        if source:
            continue
        of_jax = module == "jax" or module.startswith("jax.")
        if of_jax and code.co_name.startswith(_RULES):
            return None
        if not of_jax:
            source = _line(frame)
        if not traced:
            # What is traced once may be called from many places.
            calls.append(f"{code.co_filename}:{code.co_firstlineno}+{frame.f_lasti}")
    return Place(" ".join(calls), source)
