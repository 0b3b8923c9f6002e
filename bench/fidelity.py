"""How often a lens moves a bit of the result: random loop programs, run with and without it.

    python bench/fidelity.py [programs per size]

Writes bench/results/fidelity-jax<version>.json, and the table of all of those to bench/results/fidelity.md.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxtap as tap

RESULTS = Path(__file__).parent / "results"
SIZES = (1, 4, 16, 128, 512)
KINDS = ("scan", "while", "loop in a scan", "gradient of a scan", "scan under vmap")

# Elementwise chains that invite fused multiply-add, reductions, products, shifts, branches.
OPERATIONS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda a, b, d: a * b + d,
    lambda a, b, d: jnp.sin(a) * b - d,
    lambda a, b, d: jnp.tanh(a * 0.3 + b * b * 0.1),
    lambda a, b, d: a - b * d,
    lambda a, b, d: a * a.mean() + b,
    lambda a, b, d: jnp.roll(a, 1) * b + d,
    lambda a, b, d: jnp.where(a > b, a * 0.7 + d, b * d),
    lambda a, b, d: a / (1 + b * b) + d * 0.5,
    lambda a, b, d: jnp.outer(a, b)[:, :3].sum(1) * 0.01 + d * a,
    lambda a, b, d: jnp.exp(-a * a) * b + d * a,
    lambda a, b, d: jnp.cumsum(a) * 0.01 + b * d,
)


def chain(rng: random.Random, length: int) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """A random step: new state and output from state, input and a captured constant."""
    plan = [(rng.randrange(len(OPERATIONS)), *(rng.randrange(99) for _ in range(3))) for _ in range(length)]

    def step(c: Any, x: Any, k: Any) -> tuple[Any, Any]:
        values = [c, x, k]
        for operation, *operands in plan:
            values.append(OPERATIONS[operation](*(values[i % len(values)] for i in operands)))
        return jnp.tanh(values[-1]) + values[-2] * 0.1, values[-1] * values[-2] + values[-3]

    return step


def program(seed: int, size: int) -> tuple[Callable[..., Any], tuple[Any, ...], str]:
    """A random program, its arguments, and its kind."""
    rng = random.Random(seed)
    body, inner = chain(rng, rng.randint(3, 9)), chain(rng, rng.randint(2, 5))
    kind = KINDS[rng.randrange(len(KINDS))]
    data = np.random.default_rng(seed)
    k, c = (jnp.asarray(data.standard_normal(size), jnp.float32) for _ in range(2))
    xs = jnp.asarray(data.standard_normal((7, size)), jnp.float32)

    def scan(c: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: body(c, x, k), c, xs)

    def nested(c: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: inner(c, x, k)[0], body(c, x, k)[0]), c

    run = {
        "scan": scan,
        "while": lambda c, xs: lax.while_loop(
            lambda s: s[0] < 7, lambda s: (s[0] + 1, body(s[1], xs[0], k)[0]), (0, c)
        ),
        "loop in a scan": lambda c, xs: lax.scan(nested, c, xs),
        "gradient of a scan": lambda c, xs: jax.grad(lambda c: scan(c, xs)[0].sum())(c),
        "scan under vmap": lambda c, xs: jax.vmap(lambda s: scan(c * s, xs))(jnp.array([1.0, 0.5])),
    }[kind]
    return jax.jit(run), (c, xs), kind


def bits(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result)]


def moved(seed: int, size: int, lens: dict[str, Any]) -> str | None:
    """The kind of a program whose result has moved, or None."""
    run, args, kind = program(seed, size)
    bare = bits(run(*args))
    with tap.record(**lens):
        seen = bits(run(*args))
    return None if bare == seen else kind


def main(count: int) -> None:
    warnings.simplefilter("ignore", tap.JaxtapWarning)
    rows = []
    for size in SIZES:
        for name, lens in {"carry": {}, "carry and outputs": {"select_ys": lambda leaves: tuple(leaves)}}.items():
            kinds = [kind for seed in range(count) if (kind := moved(seed, size, lens))]
            rows.append({"state size": size, "tap": name, "programs": count, "moved": len(kinds), "kinds": kinds})
            print(json.dumps(rows[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    out = {"jax": jax.__version__, "python": sys.version.split()[0], "backend": jax.default_backend(), "rows": rows}
    (RESULTS / f"fidelity-jax{jax.__version__}.json").write_text(json.dumps(out, indent=2) + "\n")
    write_table()


def write_table() -> None:
    """One line for each JAX version and tap, one column for each state size."""
    lines = [f"| jax | tap | {' | '.join(f'{size} floats' for size in SIZES)} |", "| --- " * (len(SIZES) + 2) + "|"]
    for file in sorted(RESULTS.glob("fidelity-jax*.json")):
        found = json.loads(file.read_text())
        for name in dict.fromkeys(row["tap"] for row in found["rows"]):
            cells = [f"{row['moved']} of {row['programs']}" for row in found["rows"] if row["tap"] == name]
            lines.append(f"| {found['jax']} | {name} | {' | '.join(cells)} |")
    (RESULTS / "fidelity.md").write_text("Results that moved:\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
