import jax.numpy as jnp


def safe_log(x):
    return jnp.where(x > 0, jnp.log(x), 0.0)  # found


def divide(a, b):
    zero = b == 0
    return jnp.where(zero, 0.0, a / b)  # found


def norm(x):
    square = jnp.sum(x * x)
    return jnp.where(square > 0, square**0.5, 0.0)  # found


def part(total, count, n):
    return jnp.where(count[:n] > 0, total[:n] / count[:n], 0.0)  # found
