import jax
import jax.numpy as jnp


@jax.jit
def f(x, scale=2):
    n = int(x.shape[0]) + int(scale) + float(x.size)
    return x.astype(jnp.float32) * n


def host(x):
    return float(jnp.sum(x)), jnp.sum(x).item()
