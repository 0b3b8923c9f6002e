import jax
import jax.numpy as jnp


@jax.jit
def f(x, n):
    a = float(jnp.sum(x))  # found
    b = x.mean().item()  # found
    return a + b + int(n) + len(jnp.cumsum(x).tolist())  # found
