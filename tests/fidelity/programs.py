"""From a plan to a program: its source, which runs as it stands, and what a lens of each kind makes of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from fidelity.plans import BLOCKS, LOOPS, TRANSFORMS, Block, Line, Plan, has_marks

import jaxtap as tap

PRELUDE = '''\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxtap as tap


def matrix(t):
    """A vector as a matrix that is about square."""
    rows = next(n for n in range(int(t.size**0.5), 0, -1) if t.size % n == 0)
    return t.reshape(rows, -1)


def cholesky(t):
    wide = t.astype(jnp.float32) if t.dtype == jnp.bfloat16 else t
    return jnp.linalg.cholesky(wide @ wide.T + jnp.eye(len(wide), dtype=wide.dtype)).astype(t.dtype)


def floats(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def loss(tree):
    return sum(leaf.astype(jnp.float32).sum() for leaf in floats(tree))


'''


def source(plan: Plan) -> str:
    """A script that makes the program `f` and its arguments `args`."""
    names = (f"v{n}" for n in range(1000))
    state = ["v", "k * 0.5", "jnp.int32(0)", "jnp.float32(0.0)"][: plan.leaves]
    old = ["c", "d", "count", "total"][: plan.leaves]
    new = [
        _put(plan.end, ("p", "q", "q")),
        "q * 0.3 + d * 0.5",
        "count + (p > 0.0).sum(dtype=jnp.int32)",
        "total * 0.9 + p.astype(jnp.float32).sum()",
    ][: plan.leaves]
    # The state's vectors stand last, so that the first lines use them.
    given = ["k", "x", *reversed(old[:2])]
    lines, values = _lines(plan.body, given, names)
    p, q, r = reversed(values[-3:])
    step = [
        f"{', '.join(old)}, = state",
        *lines,
        f"p, q, r = {p}, {q}, {r}",
        f"return ({', '.join(new)},), {_put(plan.output, ('p', 'q', 'r'))}",
    ]
    before, first = _lines(plan.before, ["k", "c"], names)
    after, last = _lines(plan.after, ["k", "state[0]"], names)
    run = [
        *(["k = constant"] if plan.captured else []),
        "i = 0",
        *before,
        f"v = {first[-1]}",
        f"state = ({', '.join(state)},)",
        "",
        "def step(state, x, i):",
        *_indented(step),
        "",
        f"state, ys = {LOOPS[plan.loop].format(steps=plan.steps)}",
        *after,
        f"return state, ys, {last[-1]}",
    ]
    lines = [
        f"data = np.random.default_rng({plan.seed})",
        f"shapes = (({plan.size},), ({plan.steps}, {plan.size}), ({plan.size},))",
        f"c, xs, constant = args = tuple(jnp.asarray(data.standard_normal(s), jnp.{plan.dtype}) for s in shapes)",
        "",
        "",
        "def run(c, xs, k):",
        *_indented(run),
        "",
        "",
        f"f = {TRANSFORMS[plan.transform]}",
    ]
    return PRELUDE + "\n".join(lines) + "\n"


def _indented(lines: Iterable[str]) -> list[str]:
    return [textwrap.indent(line, "    ") for line in lines]


def _put(text: str, operands: tuple[str, str, str]) -> str:
    """A line's text with the names of its operands."""
    return re.sub(r"\b[abc]\b", lambda found: operands["abc".index(found[0])], text)


def _lines(chain: tuple[Line | Block, ...], given: list[str], names: Iterator[str]) -> tuple[list[str], list[str]]:
    """The source of a chain, and the names of all its values, the latest last."""
    values, lines = list(given), []
    for line in chain:
        a, b, c = (values[-1 - n % len(values)] for n in line.operands)
        name = next(names)
        if isinstance(line, Line):
            lines.append(f"{name} = {_put(line.text, (a, b, c))}")
        else:
            function = f"f{name[1:]}"
            inner, made = _lines(line.lines, ["c", "b", "a"], names)
            lines.append(f"def {function}(i, a, b, c):")
            lines += _indented([*inner, f"return {made[-1]}"])
            lines.append(f"{name} = {BLOCKS[line.kind].format(f=function, a=a, b=b, c=c)}")
        values.append(name)
    return lines, values


# --- Running -------------------------------------------------------------------------------------------------


def _all(leaves: Any) -> Any:
    return tuple(leaves)


def _sum(leaves: Any) -> Any:
    return leaves[0].sum()


def _sums(leaves: Any) -> Any:
    return [leaf.sum() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


# The kinds of taps. A lens sees marks, and the state of loops, unless told not to.
TAPS: dict[str, dict[str, Any]] = {
    "carry": {"marks": ()},
    "carry, reduced": {"marks": (), "select": _sums, "sample_every": 2},
    "outputs": {"marks": (), "select_ys": _all},
    "mul": {"marks": (), "ops": (), "taps": [tap.on("mul", select=_sum)]},
    "sin, add": {"marks": (), "ops": (), "taps": [tap.on(["sin", "add"])]},
    "watch_nan": {"marks": (), "ops": (), "taps": [tap.watch_nan("mul")]},
    "marks": {"ops": ()},
    "everything": {"select_ys": _all, "taps": [tap.on(["mul", "dot_general"])]},
}


def kinds_for(plan: Plan) -> list[str]:
    """The kinds of taps that a program has something for."""
    return [kind for kind in TAPS if kind != "marks" or has_marks(plan)]


def certificates(plan: Plan, kinds: Iterable[str]) -> dict[str, tap.Certificate]:
    """Compare a program with itself under a tap of each kind. JAX compiles it without a lens only once."""
    with jax.enable_x64(plan.dtype == "float64"):
        made: dict[str, Any] = {}
        exec(compile(source(plan), "<plan>", "exec"), made)
        return {kind: tap.certify(made["f"], *made["args"], **TAPS[kind]) for kind in kinds}
