import jax
import jax.numpy as jnp


@jax.jit
def f(x, layers=3):
    for _ in range(4):
        x = jnp.sin(x)
    for axis in range(x.ndim):
        x = jnp.flip(x, axis)
    names = []
    for i in range(1000):
        names.append(str(i))
    return x


def host(x):
    for _ in range(1000):
        x = jnp.sin(x)
    return x
