"""A jitted call taken apart: traced, lowered and compiled, to look at, to save, and to compare."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import jax

from jaxtap._config import check_callable
from jaxtap._signature import cut, name_of, parameter_names, written_at
from jaxtap._sources import source_of_text
from jaxtap._stages_diff import SUMMARY, StagesDiff, diff
from jaxtap._stations import UNSAID, CompiledStage, LoweredStage, TracedStage, stable

_SHOWN = 8


class Stages:
    """The stations of one call of a jitted function, from `jaxtap.stages(f, *args)`.

    Each is made when it is first asked for, and held.

    Attributes:
      wrapper: the jitted function.
      name: its name.
      static: the values of static arguments by name, as text; of those that were given.

    >>> import jax.numpy as jnp
    >>> one = stages(lambda x: jnp.sin(x) + 1.0, jnp.ones(3))
    >>> one.traced.operations, sorted(one.files())[0]
    ({'sin': 1, 'add': 1}, '1-traced.jaxpr.txt')
    """

    def __init__(self, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.wrapper = wrapper
        self._function: Any = getattr(wrapper, "__wrapped__", wrapper)
        self.name = name_of(self._function, getattr(wrapper, "__name__", "f"))
        start = time.perf_counter()
        self._traced = TracedStage(wrapper.trace(*args, **kwargs), time.perf_counter() - start)
        given = dict(zip(parameter_names(self._function, len(args)), args, strict=True)) | kwargs
        self.static = _static(given, [value.name for value in self.traced.inputs])

    @property
    def traced(self) -> TracedStage:
        """The function as equations."""
        return self._traced

    @cached_property
    def lowered(self) -> LoweredStage:
        """The function as StableHLO."""
        start = time.perf_counter()
        stage = self.traced.stage.lower()
        return LoweredStage(stage, time.perf_counter() - start)

    @cached_property
    def compiled(self) -> CompiledStage:
        """The function as a program of the backend."""
        lowered, start = self.lowered.stage, time.perf_counter()
        stage = lowered.compile()
        return CompiledStage(stage, time.perf_counter() - start)

    @property
    def source(self) -> str:
        """File, line and name of the function, as events have them."""
        info = self.traced.stage.jaxpr.debug_info
        return source_of_text(written_at(self._function, info.func_src_info or ""))

    def summary(self) -> dict[str, Any]:
        """What the stations say in numbers and short words; the same in each run of the same program."""
        traced, lowered, compiled = self.traced, self.lowered, self.compiled
        return {
            "wrapper": {"static": self.static},
            "traced": {
                "inputs": {value.name: str(value).removeprefix(f"{value.name}: ") for value in traced.inputs},
                "outputs": {value.name: str(value).removeprefix(f"{value.name}: ") for value in traced.outputs},
                "effects": list(traced.effects),
                "equations": traced.operations,
            },
            "lowered": {"cost before optimisation": _or_unsaid(lowered.cost_before_optimisation)},
            "compiled": {
                "cost": _or_unsaid(compiled.cost),
                "memory": _or_unsaid(compiled.memory),
                "input shardings": _or_unsaid(compiled.input_shardings),
                "output shardings": _or_unsaid(compiled.output_shardings),
                "input formats": _or_unsaid(compiled.input_formats),
                "output formats": _or_unsaid(compiled.output_formats),
                "instructions": _or_unsaid(compiled.operations),
            },
        }

    def files(self) -> dict[str, str]:
        """What `save` writes: the text of each file by name."""
        texts = {
            "1-traced.jaxpr.txt": self.traced.jaxpr,
            "2-lowered.stablehlo.mlir": self.lowered.stablehlo(),
            "2-lowered.stablehlo.sources.mlir": self.lowered.stablehlo(sources=True),
            "2-lowered.hlo.txt": self.lowered.hlo(),
            "2-lowered.hlo.sources.txt": self.lowered.hlo(sources=True),
            "3-compiled.hlo.txt": self.compiled.hlo,
            SUMMARY: json.dumps(self.summary(), indent=1),
        }
        return {name: f"{UNSAID if text is None else text.rstrip()}\n" for name, text in texts.items()}

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write the texts of all stations to files whose names, and for the same program texts, never differ.

        Args:
          directory: where to; it is made if it does not exist.

        Returns:
          The files.

        Raises:
          OSError: if they cannot be written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        paths: list[Path] = []
        for name, text in self.files().items():
            paths.append(folder / name)
            paths[-1].write_text(text, encoding="utf-8")
        return paths

    def report(self) -> str:
        """The stations in one page."""
        traced, lowered, compiled = self.traced, self.lowered, self.compiled
        lines = [f"wrapper   jit of {self.name}  {self.source}"]
        lines += _listed("static", [f"{name}: {value}" for name, value in self.static.items()])
        lines.append(f"traced    {traced.seconds:.3f} s  {_counts(traced.operations, 'equation')}")
        lines += _listed("in", map(str, traced.inputs)) + _listed("out", map(str, traced.outputs))
        lines.append(f"    effects: {', '.join(traced.effects) or 'none'}")
        size = len((lowered.stablehlo() or "").splitlines())
        lines.append(f"lowered   {lowered.seconds:.3f} s  {size} lines of StableHLO")
        lines.append(f"    cost before optimisation: {_amounts(lowered.cost_before_optimisation)}")
        lines.append(f"compiled  {compiled.seconds:.3f} s  {_counts(compiled.operations, 'instruction')}")
        lines.append(f"    cost: {_amounts(compiled.cost)}")
        lines.append(f"    memory in bytes: {_amounts(compiled.memory)}")
        for what in ("shardings", "formats"):
            for which in ("input", "output"):
                found = getattr(compiled, f"{which}_{what}")
                lines.append(f"    {which} {what}: {UNSAID if found is None else _distinct(found)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        made = ["traced", *(name for name in ("lowered", "compiled") if name in vars(self))]
        return f"<Stages of {self.name}: {', '.join(made)}>"


def _static(given: dict[str, Any], inputs: list[str]) -> dict[str, str]:
    """The arguments that are no inputs of the program, as text; none where the names of the inputs are not known."""
    static = {
        name: value
        for name, value in given.items()
        if not any(leaf == name or leaf.startswith((f"{name}[", f"{name}.")) for leaf in inputs)
    }
    traced = jax.tree.leaves([value for name, value in given.items() if name not in static])
    if len(traced) != len(inputs):
        return {}
    return {name: cut(stable(repr(value))) for name, value in static.items() if jax.tree.leaves(value)}


def _or_unsaid(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _or_unsaid(value) for name, value in cast("dict[str, Any]", found).items()}
    return UNSAID if found is None else found


def _counts(found: dict[str, int] | None, what: str) -> str:
    if found is None:
        return UNSAID
    most = ", ".join(f"{name} {count}" for name, count in list(found.items())[:_SHOWN])
    total = sum(found.values())
    head = f"{total} {what}{'s' * (total != 1)}"
    return f"{head}{': ' if most else ''}{most}{', ...' if len(found) > _SHOWN else ''}"


def _amounts(found: dict[str, Any] | None) -> str:
    if found is None:
        return UNSAID
    return ", ".join(f"{name} {UNSAID if n is None else f'{n:,.0f}'}" for name, n in found.items())


def _listed(head: str, lines: Any) -> list[str]:
    lines = [f"    {head:<3} {line}" for line in lines]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"    {head:<3} ... {len(lines) - _SHOWN} more"]


def _distinct(found: Sequence[str]) -> str:
    kinds = list(dict.fromkeys(found))
    counted = (f"{kind}{f' x {found.count(kind)}' if found.count(kind) > 1 else ''}" for kind in kinds[:_SHOWN])
    return f"{'; '.join(counted)}{'; ...' if len(kinds) > _SHOWN else ''}" or "none"


class _StagesFunction(Protocol):
    """`stages`, with `diff` as an attribute."""

    diff: Callable[[Stages | str | os.PathLike[str], Stages | str | os.PathLike[str]], StagesDiff]

    def __call__(
        self,
        f: Callable[..., Any],
        *args: Any,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Sequence[str] | None = None,
        jit_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Stages: ...


def _stages(
    f: Callable[..., Any],
    *args: Any,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    jit_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Stages:
    """Take one call of a jitted function apart: traced, lowered, compiled. Nothing is run.

    `stages.diff(a, b)` says what differs between two of these, or between the directories that they were saved in.

    Args:
      f: a function, or one that is jitted already.
      *args: example arguments; only shapes and dtypes matter.
      static_argnums: as for `jax.jit`, for a function that is not jitted yet.
      static_argnames: likewise.
      donate_argnums: likewise.
      donate_argnames: likewise.
      jit_options: the other options of `jax.jit`, such as `in_shardings`.
      **kwargs: example keyword arguments.

    Raises:
      ValueError: if options are given for a function that is jitted already.

    >>> import jax.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.sum((x @ w) ** 2)
    >>> found = stages(loss, jnp.ones(3), jnp.ones((5, 3)), donate_argnums=0)
    >>> [str(value) for value in found.traced.inputs]
    ['w: f32[3] donated', 'x: f32[5,3]']
    >>> found.traced.operations["dot_general"]
    1
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        **(jit_options or {}),
    }
    options = {name: value for name, value in options.items() if value is not None}
    if not (hasattr(f, "trace") and hasattr(f, "lower")):
        return Stages(jax.jit(check_callable("f", f), **options), args, kwargs)
    if options:
        raise ValueError(
            f"{', '.join(options)}: f is jitted already, with options of its own; pass the function under it instead."
        )
    return Stages(f, args, kwargs)


_stages.__name__ = _stages.__qualname__ = "stages"
stages = cast("_StagesFunction", _stages)
stages.diff = diff
