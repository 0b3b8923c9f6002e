import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def norm(x):
    return np.sqrt(np.sum(x))  # found


def body(carry, x):
    return carry + np.exp(x), None  # found


jax.lax.scan(body, 0.0, None, 3)


def never_bare(x, state=None):
    if state is None:
        return np.sum(x)  # found
    return jnp.sum(x)


never_bare_jit = jax.jit(never_bare)


def also_bare(x):
    return np.sum(x)  # found


jax.jit(also_bare)
also_bare(3)
