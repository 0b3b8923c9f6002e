"""The programs that are measured: small functions of JAX alone, but for BlackJAX's window adaptation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# A program and its arguments; `jax.jit` is put around it, or around what the lens makes of it.
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def tiny_scan(steps: int, lanes: int = 0) -> Program:
    """Eight floats and a body of two operations: nearly all of the time is the lens's."""

    def body(carry: Any, _: None) -> tuple[Any, None]:
        return carry * 0.99 + 0.1, None

    def run(x: Any) -> Any:
        return jax.lax.scan(body, x, None, length=steps)[0]

    return (jax.vmap(run) if lanes else run), (jnp.ones((lanes, 8) if lanes else 8),)


def sines(steps: int) -> Program:
    """Eight floats and a sine."""

    def run(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.sin(c) * 0.9 + 0.1, None), x, None, length=steps)[0]

    return run, (jnp.ones(8),)


def matrix_steps(steps: int, dim: int = 1_600) -> Program:
    """A matrix-vector product a step, which takes about 100 µs."""
    matrix = jax.random.normal(jax.random.key(0), (dim, dim)) / dim

    def run(matrix: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.tanh(matrix @ c) * 0.9 + 0.1, c[0]), x, None, length=steps)

    return run, (matrix, jnp.ones(dim))


def trajectories(steps: int, dim: int = 100, answers: int = 200) -> Program:
    """Trajectories of 15 leapfrog steps, one after the other, in the posterior of a logistic regression."""
    design = jax.random.normal(jax.random.key(1), (answers, dim)) / jnp.sqrt(dim)

    def gradient(x: Any) -> Any:
        return x + design.T @ (jax.nn.sigmoid(design @ x) - 0.5)

    def leapfrog(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        x, p = state
        x = x + 0.05 * p
        p = p - 0.1 * gradient(x)
        return (x + 0.05 * p, p), None

    def draw(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        x, p = state
        return jax.lax.scan(leapfrog, (x, p * 0.9 + 0.1), None, length=15)[0], None

    return lambda x, p: jax.lax.scan(draw, (x, p), None, length=steps)[0], (jnp.ones(dim), jnp.ones(dim))


def first_number(leaves: Any) -> Any:
    """Of the state, one number."""
    return leaves[0][0]


def warmup(steps: int, dim: int = 100) -> Program:
    """A warmup of NUTS on a logistic regression, compiled as a whole."""
    import blackjax  # noqa: PLC0415 - no other program needs it

    design = jax.random.normal(jax.random.key(1), (1000, dim))
    answers = jnp.float32(jax.random.uniform(jax.random.key(3), (1000,)) < 0.5)

    def logdensity(x: Any) -> Any:
        logits = design @ x
        return jnp.sum(answers * logits - jnp.logaddexp(0.0, logits)) - 0.5 * jnp.sum(jnp.square(x))

    adaptation = blackjax.window_adaptation(blackjax.nuts, logdensity)
    return lambda key, start: adaptation.run(key, start, steps)[0], (jax.random.key(0), jnp.zeros(dim))


def bodies(size: int, steps: int = 2_000) -> Program:
    """64 floats and a body of `size` sines: what a step costs can be chosen."""

    def body(carry: Any, _: None) -> tuple[Any, None]:
        for _ in range(size):
            carry = jnp.sin(carry) + 0.1
        return carry, None

    return lambda x: jax.lax.scan(body, x, None, length=steps)[0], (jnp.ones(64),)


def counted_loop() -> Program:
    """A loop over one float whose trip count is an argument, to be given after those here."""

    def run(x: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda i, c: c * 0.99 + 0.1, x)

    return run, (jnp.float32(1.0),)


def nested_loops(draws: int, dim: int = 100) -> Program:
    """The loops of a sampler like NUTS: draws, doublings whose number differs, leapfrog steps in each."""
    precision = jnp.eye(dim) + 0.5 / dim

    def gradient(x: Any) -> Any:
        return -(precision @ x)

    def leapfrog(_: int, state: tuple[Any, Any]) -> tuple[Any, Any]:
        x, p = state
        p = p + 0.05 * gradient(x)
        x = x + 0.1 * p
        return x, p + 0.05 * gradient(x)

    def doubling(state: Any) -> Any:
        x, p, depth, bound = state
        x, p = jax.lax.fori_loop(0, 2**depth, leapfrog, (x, p))
        return x, p, depth + 1, bound

    def draw(x: Any, key: Any) -> tuple[Any, Any]:
        momentum, bound = jax.random.normal(key, (dim,)), jax.random.randint(key, (), 1, 4)
        x, *_ = jax.lax.while_loop(lambda s: s[2] < s[3], doubling, (x, momentum, 0, bound))
        return x, x[0]

    return lambda x, keys: jax.lax.scan(draw, x, keys), (jnp.ones(dim), jax.random.split(jax.random.key(0), draws))


def unrolled_network(layers: int = 8, width: int = 32) -> Program:
    """Gradient descent on a deep network whose layers are written out one by one: seconds to compile."""
    keys = jax.random.split(jax.random.key(0), layers)
    weights = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
    inputs = jnp.ones((5, 16, width))

    def loss(weights: Any, x: Any) -> Any:
        h = x
        for i, w in enumerate(weights):
            h = jax.nn.gelu(h @ w) + jnp.sin(h * (i + 1)) * jax.nn.softmax(h)
        return jnp.mean(h**2)

    def step(weights: Any, x: Any) -> tuple[Any, Any]:
        value, slope = jax.value_and_grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, slope), value

    return lambda weights, xs: jax.lax.scan(step, weights, xs), (weights, inputs)


def window_adaptation(dim: int = 10, steps: int = 20) -> Program:
    """BlackJAX's warmup of NUTS on a correlated normal distribution."""
    import blackjax  # noqa: PLC0415 - only this program needs it

    spread = jnp.linspace(0.5, 2.0, dim)

    def logdensity(x: Any) -> Any:
        return -0.5 * jnp.sum((x / spread) ** 2) - 0.1 * jnp.sum(x[1:] * x[:-1]) ** 2

    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    return lambda key, x: warmup.run(key, x, num_steps=steps), (jax.random.key(0), jnp.ones(dim))


def mapped_nuts(chains: int = 8, dim: int = 10, draws: int = 20) -> Program:
    """BlackJAX's NUTS on a correlated normal distribution, chain by chain under vmap."""
    import blackjax  # noqa: PLC0415 - only this program and the one above need it

    spread = jnp.linspace(0.5, 2.0, dim)

    def logdensity(x: Any) -> Any:
        return -0.5 * jnp.sum((x / spread) ** 2) - 0.1 * jnp.sum(x[1:] * x[:-1]) ** 2

    kernel = blackjax.nuts(logdensity, step_size=0.3, inverse_mass_matrix=jnp.ones(dim))

    def chain(key: Any, x: Any) -> Any:
        return jax.lax.scan(lambda state, key: kernel.step(key, state), kernel.init(x), jax.random.split(key, draws))

    starts = jax.random.normal(jax.random.key(1), (chains, dim))
    return jax.vmap(chain), (jax.random.split(jax.random.key(0), chains), starts)
