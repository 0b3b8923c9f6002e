import jax
import jax.numpy as jnp


@jax.jit
def f(x):
    a = x[x > 0]  # found
    b = jnp.nonzero(x)  # found
    c = jnp.where(x > 0)  # found
    return a, b, c, jnp.unique(x)  # found
