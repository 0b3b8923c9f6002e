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
