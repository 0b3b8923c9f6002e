"""What JAX is tracing, lowering or compiling, read from the frames of `jax.jit` while its event bus calls a listener.

The bus gives a function's name and seconds. Which function object it is, with which arguments, which of them
static, under which options of `jit`: no public name tells. So this file reads local variables of three
functions of JAX's jit. Where one is gone, a compile is logged without its reason, and
`tests/core/test_private.py` fails.
"""

from __future__ import annotations

import dataclasses
import inspect
from types import FrameType
from typing import Any

_MODULE = "jax._src.pjit"
# Function of JAX's, and what it calls the options of `jit`. The first of these traces, the others are called by users.
_TRACING = {"_trace_for_jit": "ji"}
_CALLED = {"cache_miss": "jit_info"}
# An inner call of jit that is not the innermost one stands deeper than this.
_DEPTH = 40
_OPTIONS = (
    "in_shardings_leaves",
    "out_shardings_leaves",
    "donate_argnums",
    "donate_argnames",
    "device",
    "backend",
    "keep_unused",
    "inline",
    "compiler_options_kvs",
)


@dataclasses.dataclass(frozen=True)
class JitCall:
    """One call of a jitted function that JAX has no program for.

    Attributes:
      function: what `jit` was applied to.
      args: positional arguments.
      kwargs: keyword arguments.
      static_argnums: positions of static arguments.
      static_argnames: names of static arguments.
      options: the other options of `jit`, as text.
      source: where the function was written, as `"f at /path/file.py:17"`; empty where it was not in Python.
      jaxpr: what it was traced to; None where this call is not being traced.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]
    options: dict[str, str]
    source: str
    jaxpr: Any


def traced_call() -> JitCall | None:
    """The call whose trace has just ended; None if the trace failed, or the frames are not as known."""
    return _call(_TRACING)


def compiled_call() -> JitCall | None:
    """The call that waits for a program to be lowered or compiled; None if there is none."""
    return _call(_CALLED)


def _call(functions: dict[str, str]) -> JitCall | None:
    frame = inspect.currentframe()
    for _ in range(_DEPTH):
        if frame is None:
            return None
        if frame.f_code.co_name in functions and frame.f_globals.get("__name__") == _MODULE:
            try:
                return _of_frame(frame, functions[frame.f_code.co_name])
            except (KeyError, AttributeError, TypeError):
                return None
        frame = frame.f_back
    return None


def _of_frame(frame: FrameType, options_name: str) -> JitCall:
    names = frame.f_locals
    options, function = names[options_name], names["fun"]
    traced = options_name == _TRACING["_trace_for_jit"]
    return JitCall(
        function=function,
        args=tuple(names["args"]),
        kwargs=dict(names["kwargs"]),
        static_argnums=tuple(options.static_argnums),
        static_argnames=tuple(options.static_argnames),
        options={name: str(getattr(options, name, None)) for name in _OPTIONS},
        source=str(options.fun_sourceinfo),
        jaxpr=names["jaxpr"] if traced else None,
    )
