import jax
import jax.numpy as jnp


@jax.jit
def f(x):
    for i in range(1000):  # found
        x = jnp.sin(x) + i
    total = 0.0
    for i in range(x.shape[0]):  # found
        total = total + jnp.cos(x[i])
    return total
