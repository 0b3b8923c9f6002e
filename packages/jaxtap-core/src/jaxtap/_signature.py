"""What JAX keys a trace by, as far as it can be compared from outside: function, arguments, options, context."""

from __future__ import annotations

import dataclasses
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.core import Tracer

from jaxtap import _active
from jaxtap._jit_frames import JitCall
from jaxtap._leaves import type_text

# The length at which values are cut in messages.
_WIDTH = 60
# What JAX says of a function that is none to Python, but an object that can be called.
_NOWHERE = "<unknown>"
# Lenses have no names: those that programs were traced under are numbered.
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class LeafType:
    """What JAX knows of an array before it has values.

    Attributes:
      dtype: its dtype, short, such as `"f32"`.
      shape: its shape.
      weak: whether its dtype yields to others, as that of a Python number does.
      sharding: on which devices it was put; empty where that was left to JAX.
    """

    dtype: str
    shape: tuple[int, ...]
    weak: bool
    sharding: str

    def __str__(self) -> str:
        return type_text(self.dtype, self.shape)


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a call.

    Attributes:
      leaves: name and type of each leaf; empty for a static argument.
      structure: its tree, as text.
      treedef: its tree.
      static: the value of a static argument, in a tuple; empty for another.
      by_keyword: whether it was given by name, which is another tree to JAX.
    """

    leaves: tuple[tuple[str, LeafType], ...] = ()
    structure: str = ""
    treedef: Any = None
    static: tuple[Any, ...] = ()
    by_keyword: bool = False

    def __str__(self) -> str:
        return cut(self.whole())

    def whole(self) -> str:
        """It as text, however long."""
        if self.static:
            return repr(self.static[0])
        return str(self.leaves[0][1]) if len(self.leaves) == 1 and self.structure == "*" else self.structure


@dataclasses.dataclass(frozen=True)
class Signature:
    """One call, as far as JAX looks at it before it traces.

    Attributes:
      function: gives the function object, or None when it is gone.
      codes: the instructions of that function, and of those that it wraps.
      arguments: the arguments by name.
      options: the options of `jit`.
      context: configuration options, and what else is entered around the call.
    """

    function: Callable[[], Any]
    codes: tuple[Any, ...]
    arguments: dict[str, Argument]
    options: dict[str, str]
    context: dict[str, str]

    def shapes(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each leaf, and the values of static arguments."""
        found: list[tuple[str, str]] = []
        for name, argument in self.arguments.items():
            leaves = [(leaf, str(of)) for leaf, of in argument.leaves]
            found += [(name, str(argument))] if argument.static else leaves
        return tuple(found)


def cut(text: str) -> str:
    """A text in one line of bounded length."""
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def apart(before: str, after: str) -> tuple[str, str]:
    """Two texts in lines of bounded length, cut so that what differs is seen."""
    before, after = (" ".join(text.split()) for text in (before, after))
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    start = same - _WIDTH // 2
    if before == after or start <= 0 or max(len(before), len(after)) <= _WIDTH:
        return cut(before), cut(after)
    return cut(f"...{before[start:]}"), cut(f"...{after[start:]}")


def _layers(function: Any) -> Iterator[Any]:
    """A function and what it wraps, outermost first."""
    for _ in range(20):
        if function is None:
            return
        yield function
        names: dict[str, Any] = getattr(function, "__dict__", None) or {}
        function = names.get("__wrapped__") or getattr(function, "func", None)


def identity(function: Any) -> tuple[str, ...]:
    """What stays the same when a function is defined again: where it and all that it wraps was written."""
    codes = [(layer, _code(layer)) for layer in _layers(function)]
    return tuple(type(f).__qualname__ if c is None else f"{c.co_filename}:{c.co_firstlineno}" for f, c in codes)


def _code(function: Any) -> Any:
    """The instructions of a function, method or callable object; None where they are not Python's."""
    methods = (vars(kind).get("__call__") for kind in type(function).__mro__)
    for candidate in (function, getattr(function, "__func__", None), *methods):
        code = getattr(candidate, "__code__", None)
        if code is not None:
            return code
    return None


def name_of(function: Any, name: str) -> str:
    """The name that JAX has for a function, or that of its class where it has none."""
    return type(function).__name__ if name.startswith("<unnamed") else name


def written_at(function: Any, text: str) -> str:
    """Where JAX says that a function was written, or where its `__call__` was, as `"f at /path/file.py:17"`."""
    if text != _NOWHERE:
        return text
    code = _code(function)
    return "" if code is None else f"{code.co_name} at {code.co_filename}:{code.co_firstlineno}"


def signature(call: JitCall) -> Signature:
    """The signature of a call."""
    return Signature(
        function=_weakly(call.function),
        codes=tuple(map(_code, _layers(call.function))),
        arguments=_arguments(call),
        options=call.options,
        context=_context(),
    )


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _arguments(call: JitCall) -> dict[str, Argument]:
    names = parameter_names(call.function, len(call.args))
    static = {i % len(call.args) for i in call.static_argnums if -len(call.args) <= i < len(call.args)}
    found: dict[str, Argument] = {}
    for i, (name, value) in enumerate(zip(names, call.args, strict=True)):
        found[name] = _argument(name, value, i in static, False)
    for name in sorted(call.kwargs):
        found[name] = _argument(name, call.kwargs[name], name in call.static_argnames, True)
    return found


def parameter_names(function: Any, count: int) -> list[str]:
    """What the first positional arguments of a call are called."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
    names += [f"argument {i}" for i in range(len(names), count)]
    return names[:count]


def _argument(name: str, value: Any, is_static: bool, by_keyword: bool) -> Argument:
    if is_static:
        return Argument(static=(value,), by_keyword=by_keyword)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(value)
    return Argument(
        leaves=tuple((name + jax.tree_util.keystr(path), _leaf_type(leaf)) for path, leaf in leaves),
        structure=str(treedef).removeprefix("PyTreeDef(").removesuffix(")"),
        treedef=treedef,
        by_keyword=by_keyword,
    )


def _leaf_type(leaf: Any) -> LeafType:
    aval = jax.typeof(leaf)
    return LeafType(
        dtype=short_dtype(str(getattr(aval, "dtype", type(leaf).__name__))),
        shape=tuple(getattr(aval, "shape", ())),
        weak=bool(getattr(aval, "weak_type", False)),
        sharding=_sharding(leaf),
    )


def short_dtype(dtype: str) -> str:
    """`float32` as `f32`, the way jaxprs print it."""
    return re.sub(r"^(bf|f|u|c|i)(?:loat|int|omplex|nt)(?=\d)", r"\1", dtype)


def _sharding(leaf: Any) -> str:
    # Under `vmap` and the like, an argument is no array yet.
    if isinstance(leaf, Tracer) or not getattr(leaf, "committed", False):
        return ""
    return sharding_text(leaf.sharding)


def sharding_text(sharding: Any) -> str:
    """A sharding, short: its partition and the mesh, or its devices."""
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return ", ".join(sorted(map(str, sharding.device_set)))
    return f"P{tuple(sharding.spec)} over ({_mesh_text(sharding.mesh)})"


def _mesh_text(mesh: Any) -> str:
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return ", ".join(f"{name}={size}:{kind.name}" for name, size, kind in axes)


def _context() -> dict[str, str]:
    values: dict[str, Any] = getattr(jax.config, "values", {})
    context = {name: cut(str(value)) for name, value in values.items()}
    context["mesh"] = _mesh_text(jax.sharding.get_abstract_mesh()) or "none"
    lenses = [f"lens {_numbers.setdefault(key, len(_numbers) + 1)}" for key in _active.active()]
    context["jaxtap"] = ", ".join(lenses) or "no lens"
    return context
