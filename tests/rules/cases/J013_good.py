import jax.numpy as jnp


def safe_log(x):
    safe = jnp.where(x > 0, x, 1.0)
    return jnp.where(x > 0, jnp.log(safe), 0.0)


def divide(a, b):
    b_is_zero = b == 0
    b = jnp.where(b_is_zero, 1.0, b)
    return jnp.where(b_is_zero, 0.0, a / b)


def pick(mask, x):
    return jnp.where(mask, jnp.sqrt(x), 0.0) + jnp.where(x > 0, jnp.log(x + 1.0), x**2)


def clamped(total, count, n):
    count = jnp.maximum(count, 1.0)
    return jnp.where(count[:n] > 0, total[:n] / count[:n], 0.0)
