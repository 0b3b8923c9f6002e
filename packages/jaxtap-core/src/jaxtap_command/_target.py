"""The function that a subcommand is about, and what to call it with."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_command._bad import BadInput, Failed


@dataclass(frozen=True)
class Target:
    """A function and its arguments.

    Attributes:
      name: as given, "module:function".
      module: the module that it was looked up in.
      function: the function, as the module has it.
      args: the positional arguments.
      kwargs: the keyword arguments.
    """

    name: str
    module: ModuleType
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments, never None."""
        return dict(self.kwargs or {})

    @property
    def jitted(self) -> Any:
        """The function, compiled: itself where it is already."""
        return self.function if is_jitted(self.function) else jax.jit(self.function)

    def donates(self, args: tuple[Any, ...] | None = None) -> bool:
        """Whether a call uses up arrays that it is given."""
        info = self.jitted.trace(*(self.args if args is None else args), **self.keywords).args_info
        return any(leaf.donated for leaf in jax.tree.leaves(info, is_leaf=lambda x: hasattr(x, "donated")))


@dataclass(frozen=True)
class Call:
    """The arguments of one call.

    Attributes:
      args: those by position.
      kwargs: those by name.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @staticmethod
    def of(*args: Any, **kwargs: Any) -> Call:
        """A call with these arguments; `call(x, n=2)` in an expression."""
        return Call(args, kwargs)


def copied(values: Any) -> Any:
    """The same arguments, in arrays of their own, for a call that uses them up."""
    return jax.tree.map(lambda x: jnp.copy(x) if isinstance(x, jax.Array) else x, values)


def is_jitted(function: object) -> bool:
    """Whether a function is a compiled one, with stations of its own."""
    return callable(function) and hasattr(function, "trace") and hasattr(function, "lower")


def arguments(parser: argparse.ArgumentParser, args: bool = True) -> None:
    """Add the function, and the option for its arguments."""
    parser.add_argument(
        "target", metavar="MODULE:FUNCTION", help="as train:step; the folder you are in is looked in first"
    )
    if args:
        parser.add_argument(
            "--args",
            metavar="EXPR",
            default="",
            help="its arguments, as in a call: 'jnp.ones(3), n=2'; knows the module's names",
        )


def load(options: argparse.Namespace) -> Target:
    """Find the function and evaluate its arguments.

    Raises:
      BadInput: there is no such module or function, or the arguments do not fit.
    """
    target = find(options.target)
    call: Call = evaluate(target, f"_call({options.args}\n)", "--args", options.args)
    check_fit(target, call)
    return Target(target.name, target.module, target.function, call.args, call.kwargs)


def find(name: str) -> Target:
    """Import the module and look up the function.

    Raises:
      BadInput: there is no such module or function.
    """
    module_name, colon, function_name = name.partition(":")
    if not (colon and module_name and function_name):
        raise BadInput(f"{name!r} is not MODULE:FUNCTION: write it as train:step")
    if module_name.endswith(".py") or os.sep in module_name:
        proposal = module_name.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise BadInput(f"{module_name!r} is a path: name the module, {proposal}:{function_name}")
    module = load_module(module_name)
    found: Any = module
    for part in function_name.split("."):
        if not hasattr(found, part):
            names = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module_name]
            raise BadInput(
                f"{module_name} has no {function_name!r}; it has: {', '.join(sorted(names)) or 'no functions'}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"{name} is a {type(found).__name__}: name a function")
    return Target(name, module, found)


def load_module(name: str) -> ModuleType:
    """Import a module, with the folder one is in looked in first.

    Raises:
      BadInput: there is none, or importing it fails.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with quietly():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(f"no module named {name!r}: run from the folder that holds it, or install it") from None
        raise BadInput(f"{name} needs the module {error.name!r}, which is not installed: install it") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        raise BadInput(f"importing {name} raised {tell(error)}: mend that first") from None


def evaluate(target: Target, code: str, option: str, shown: str) -> Any:
    """Evaluate an expression with the names of the target's module, `jax`, `jnp`, `np` and `call`.

    Raises:
      BadInput: it is no expression, or raises.
    """
    names = {"jax": jax, "jnp": jnp, "np": np, "call": Call.of, **vars(target.module), "_call": Call.of}
    try:
        with quietly():
            return eval(code, names)
    except SyntaxError:
        raise BadInput(f"{option} {shown!r} is no Python expression: quote it, as {option} 'jnp.ones(3)'") from None
    except Exception as error:  # noqa: BLE001 - an expression of the user's may raise anything
        raise BadInput(f"{option} {shown!r} raised {tell(error)}") from None


def check_fit(target: Target, call: Call) -> None:
    """See whether a function takes some arguments.

    Raises:
      BadInput: it does not.
    """
    try:
        signature = inspect.signature(target.function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        if call.args or call.kwargs:
            raise BadInput(f"{target.name}{signature} does not take these arguments: {error}") from None
        needed = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind not in _STARRED]
        raise BadInput(
            f"{target.name} needs arguments ({', '.join(needed)}): give them with --args 'EXPR, ...'"
        ) from None


_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Keep what the user's code prints out of the results: it goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def running(target: Target, doing: str) -> Generator[None]:
    """Run the user's function.

    Raises:
      Failed: it raised.
    """
    try:
        with quietly():
            yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's function may raise anything
        raise Failed(f"{target.name} raised while {doing}: {tell(error)}") from None


def tell(error: BaseException) -> str:
    """An error in one short line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0][:200].rstrip(".") if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
