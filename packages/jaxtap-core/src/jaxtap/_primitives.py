"""Listing the primitives of a program, so that a user finds out what to tap."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtap import _active
from jaxtap._config import Tap, View
from jaxtap._jaxprs import inner, subjaxprs
from jaxtap._leaves import type_text
from jaxtap._loops import Leaf, leaves_of_mark, surveyed
from jaxtap._mark import is_mark, is_point
from jaxtap._numbering import Numbering


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation of a program.

    Attributes:
      path: its address.
      primitive: name of its primitive.
      source: the line that made it, as `"file.py:42 (function)"`.
      outputs: its outputs.

    >>> import jax.numpy as jnp
    >>> primitives(jnp.sin, 1.0).of("sin")[0].path
    'sin[0]'
    """

    path: str
    primitive: str
    source: str
    outputs: tuple[Leaf, ...]

    def __repr__(self) -> str:
        outputs = ", ".join(type_text(leaf.dtype, leaf.shape) for leaf in self.outputs)
        return f"{self.path}  {self.source}  {outputs}"


class Equations(dict[str, int]):
    """The primitives of a program: a dictionary from name to how often it is written, at any depth.

    Attributes:
      equations: each equation, with its address, in the order of the program.

    >>> import jax.numpy as jnp
    >>> from jax import lax
    >>> found = primitives(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(jnp.sin(x)), x), 1.0)
    >>> found["sin"], [equation.path for equation in found.of("sin")]
    (2, ['scan[0]/sin[0]', 'scan[0]/sin[1]'])
    """

    def __init__(self, counts: dict[str, int], equations: tuple[Equation, ...]) -> None:
        super().__init__(counts)
        self.equations = equations

    def of(self, name: str) -> tuple[Equation, ...]:
        """The equations of one primitive."""
        return tuple(equation for equation in self.equations if equation.primitive == name)


def primitives(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Equations:
    """Count the primitives of `f(*args)`, so as to find the name to hand to `on`.

    The function is traced, not run. Equations inside of loops, branches and calls count as often as they are
    written. `.equations` lists them: address, source line, shapes of the outputs.

    Args:
      f: any function that JAX can trace.
      *args: example arguments; only shapes and dtypes matter.
      **kwargs: example keyword arguments.

    >>> import jax, jax.numpy as jnp
    >>> def run(x):
    ...     return jax.lax.scan(lambda c, _: (jnp.sin(c) * 2.0, None), x, None, length=3)[0]
    >>> found = primitives(run, 1.0)
    >>> found["sin"], found.of("mul")[0].path, found.of("mul")[0].outputs
    (1, 'scan[0]/mul[0]', (outputs[0]: float32[],))
    """
    key = _active.Key(View(select=None, taps=(Tap(primitives=("*",)),)))
    jaxpr = surveyed(f, args, kwargs, key)
    counts: collections.Counter[str] = collections.Counter()
    found: list[Equation] = []
    numbering = Numbering()

    def walk(jaxpr: Any) -> None:
        for eqn in inner(jaxpr).eqns:
            if is_point(eqn) and eqn.params["site"].kind == "primitive":
                site = eqn.params["site"]
                found.append(Equation(numbering.text(eqn.params["path"]), site.op, site.source, leaves_of_mark(eqn)))
            elif not is_mark(eqn):
                counts[eqn.primitive.name] += 1
            for sub in subjaxprs(eqn):
                walk(sub)

    walk(jaxpr)
    return Equations(counts, tuple(found))
