"""Random loop programs, drawn as plain data so that Hypothesis can print and shrink them."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

# What one line of a program may compute, of three values of one shape and dtype and the step's index `i`.
FUSIBLE = (
    "a * b + c",
    "a - b * c",
    "jnp.sin(a) * b - c",
    "jnp.tanh(a * 0.3 + b * b * 0.1)",
    "jnp.where(a > b, a * 0.7 + c, b * c)",
    "a / (1.0 + b * b) + c * 0.5",
    "jnp.exp(-a * a) * b + c * a",
    "jnp.sqrt(a * a + b * b + 0.1) - c",
    "jax.nn.silu(a) * b + c",
    "(a.astype(jnp.float32) * b.astype(jnp.float32) + 0.1).astype(a.dtype) * c",
    "a * jnp.asarray(i, a.dtype) + b * c",
    "jnp.where(a > 0.0, jnp.log(a) * b, c)",  # not finite on the way, and finite in the end
)
REDUCING = (
    "a * a.mean() + b",
    "jnp.cumsum(a) * 0.01 + b * c",
    "jax.nn.softmax(a) * b + c",
    "(a - a.mean()) / (a.std() + 1.0) * b + c",
    "jnp.dot(a, b) * 0.01 * c + a",
    "jnp.max(a) - b * c",
    "jnp.sort(a) * b + c",
)
PRODUCTS = (
    "(matrix(a) @ matrix(b).T @ matrix(c)).ravel() * 0.02 + a",
    "jnp.outer(a, b[:3]) @ c[:3] * 0.1 + b",
    "jnp.einsum('ij,ij->i', matrix(a), matrix(b)).sum() * 0.01 * c + a",
    "cholesky(matrix(a))[0, 0] * b + c",
)
INDEXING = (
    "jnp.roll(a, 1) * b + c",
    "a[::-1] - b * c",
    "a[jnp.argmax(b)] * c + a",
    "a[jnp.argsort(b)] * c + b",
    "a.at[i % a.size].add(b[0] * c[0])",
    "lax.dynamic_update_slice(a, b[:1] * c[:1], (i % a.size,)) + c * 0.1",
    "jnp.concatenate([a[1:], b[:1] * c[:1]])",
)
DERIVED = (
    "jax.grad(lambda t: (jnp.sin(t) * b).sum())(a) * 0.5 + c",
    "jax.random.normal(jax.random.fold_in(jax.random.key(0), i), a.shape, a.dtype) * b + c",
)
MARKS = ("tap.mark('v', a)", "tap.mark('w', a * b) + c", "tap.mark('x', {'s': a.sum(), 't': b})['s'] * 0.1 * b + c")

# What may stand around a few lines, made a function `{f}(i, a, b, c)`.
BLOCKS = {
    "jit": "jax.jit({f})(i, {a}, {b}, {c})",
    "cond": "lax.cond({a}.sum() > 0.0, lambda: {f}(i, {a}, {b}, {c}), lambda: {b} * {c} - {a})",
    "fori": "lax.fori_loop(0, 3, lambda i, s: {f}(i, s, {b}, {c}), {a})",
    "scan": "lax.scan(lambda s, t: ({f}(i, s, t, {c}), s), {a}, jnp.stack([{b}, {c}]))[0]",
    "while": "lax.while_loop(lambda s: (s[0] < 4) & (jnp.abs(s[1]).max() < 9.0), "
    "lambda s: (s[0] + 1, {f}(i, s[1], {b}, {c})), (0, {a}))[1]",
    "checkpoint": "jax.checkpoint({f})(i, {a}, {b}, {c})",
    "vmap": "jax.vmap({f}, (None, 0, None, None))(i, jnp.stack([{a}, {b}]), {b}, {c}).sum(0) * 0.5",
}

# How the next state comes from the last two values, and what a step returns.
ENDS = ("jnp.tanh(a) + b * 0.1", "a / (1.0 + jnp.abs(a)) + b * 0.1", "jnp.clip(a * 0.7 + b * 0.2, -3.0, 3.0)")
OUTPUTS = ("a * b + c", "(a, b * c)", "a.sum()", "()")

LOOPS = {
    "scan": "lax.scan(lambda s, t: step(s, *t), state, (xs, jnp.arange({steps})))",
    "reversed": "lax.scan(lambda s, t: step(s, *t), state, (xs, jnp.arange({steps})), reverse=True)",
    "unrolled": "lax.scan(lambda s, t: step(s, *t), state, (xs, jnp.arange({steps})), unroll=2)",
    "fori": "lax.fori_loop(0, {steps}, lambda i, s: step(s, xs[i], i)[0], state), ()",
    "while": "lax.while_loop(lambda s: s[0] < {steps}, "
    "lambda s: (s[0] + 1, step(s[1], xs[s[0]], s[0])[0]), (0, state))[1], ()",
    "map": "state, lax.map(lambda t: step(state, *t), (xs, jnp.arange({steps})))",
}

TRANSFORMS = {
    "jit": "jax.jit(run)",
    "eager": "run",
    "vmap": "jax.jit(lambda c, xs, k: jax.vmap(lambda s: run(c * s, xs, k))(jnp.array([1.0, 0.5, -0.7], c.dtype)))",
    "jvp": "jax.jit(lambda c, xs, k: jax.jvp(lambda c: floats(run(c, xs, k)), (c,), (k,)))",
    "grad": "jax.jit(jax.grad(lambda c, xs, k: loss(run(c, xs, k)), (0, 1)))",
    "grad of checkpoint": "jax.jit(jax.grad(lambda c, xs, k: loss(jax.checkpoint(run)(c, xs, k))))",
    "vmap of grad": "jax.jit(lambda c, xs, k: jax.vmap(jax.grad(lambda s: loss(run(c * s, xs, k))))"
    "(jnp.array([1.0, 0.5, -0.7], c.dtype)))",
}

# Of each, Hypothesis likes the first best.
SIZES = (
    (2, 3, 4, 5, 8, 15, 16),
    (17, 32, 64, 100, 128),
    (256, 500, 512),
    (1000, 1024, 4096),
    (1,),
)
STEPS = (3, 7, 2, 5, 4, 6, 1)
DTYPES = ("float32", "float32", "float64", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a program.

    Attributes:
      text: what it computes of `a`, `b`, `c` and `i`.
      operands: which values those are, the latest being 0; counted round and round.
    """

    text: str
    operands: tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Block:
    """Lines within a nested loop, branch or call.

    Attributes:
      kind: one of `BLOCKS`.
      operands: which values the lines begin with, the latest being 0.
      lines: what is computed of them.
    """

    kind: str
    operands: tuple[int, int, int]
    lines: tuple[Line | Block, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A loop program.

    Attributes:
      size: elements of a leaf of the state.
      dtype: of the state.
      loop: one of `LOOPS`.
      transform: one of `TRANSFORMS`.
      steps: trip count.
      leaves: how many leaves the state has: a vector, another, a counter, a sum in float32.
      captured: whether the constant is closed over, not an argument.
      before: what is computed ahead of the loop.
      body: what is computed in each step.
      end: how the next state comes from the last two values.
      output: what a step returns.
      after: what is computed of the last state.
      seed: of the numbers that it runs on.
    """

    size: int
    dtype: str
    loop: str
    transform: str
    steps: int
    leaves: int
    captured: bool
    before: tuple[Line | Block, ...]
    body: tuple[Line | Block, ...]
    end: str
    output: str
    after: tuple[Line | Block, ...]
    seed: int

    @property
    def chains(self) -> tuple[tuple[Line | Block, ...], ...]:
        return (self.before, self.body, self.after)


def holds(lines: tuple[Line | Block, ...], what: tuple[str, ...]) -> bool:
    """Whether a line with one of these texts, or a block of one of these kinds, is among some lines."""
    return any(
        line.text in what if isinstance(line, Line) else line.kind in what or holds(line.lines, what) for line in lines
    )


def has_marks(plan: Plan) -> bool:
    return any(holds(chain, MARKS) for chain in plan.chains)


def is_smooth(loop: str, chains: tuple[tuple[Line | Block, ...], ...]) -> bool:
    """Whether reverse-mode differentiation allows it."""
    return loop != "while" and not any(holds(chain, ("while",)) for chain in chains)


# --- Drawing -------------------------------------------------------------------------------------------------


def texts() -> st.SearchStrategy[str]:
    families = (FUSIBLE, FUSIBLE, FUSIBLE, REDUCING, PRODUCTS, INDEXING, DERIVED, MARKS)
    return st.sampled_from(families).flatmap(st.sampled_from)


@st.composite
def chains(draw: Any, given: int, least: int, most: int, depth: int) -> tuple[Line | Block, ...]:
    """Some lines that begin with `given` values."""
    found: list[Line | Block] = []
    for n in range(given, given + draw(st.integers(least, most))):
        operands = tuple(draw(st.integers(0, n - 1)) for _ in range(3))
        if depth and draw(st.integers(0, 4)) == 4:
            inner = draw(chains(3, 1, 2, depth - 1))
            found.append(Block(draw(st.sampled_from(list(BLOCKS))), operands, inner))
        else:
            found.append(Line(draw(texts()), operands))
    return tuple(found)


@st.composite
def plans(draw: Any) -> Plan:
    """A program to compare with itself."""
    loop = draw(st.sampled_from(list(LOOPS)))
    leaves = draw(st.integers(1, 4))
    before, after = draw(chains(2, 0, 1, 1)), draw(chains(2, 0, 1, 1))
    body = draw(chains(3 if leaves == 1 else 4, 2, 5, 2))
    smooth = is_smooth(loop, (before, body, after))
    return Plan(
        size=draw(st.sampled_from(SIZES).flatmap(st.sampled_from)),
        dtype=draw(st.sampled_from(DTYPES)),
        loop=loop,
        transform=draw(st.sampled_from([t for t in TRANSFORMS if smooth or "grad" not in t])),
        steps=draw(st.sampled_from(STEPS)),
        leaves=leaves,
        captured=draw(st.booleans()),
        before=before,
        body=body,
        end=draw(st.sampled_from(ENDS)),
        output=draw(st.sampled_from(OUTPUTS)),
        after=after,
        seed=draw(st.integers(0, 99)),
    )
