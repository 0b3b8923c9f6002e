import jax
import numpy as np


@jax.jit
def norm(x):
    return np.sqrt(np.sum(x))  # found


def body(carry, x):
    return carry + np.exp(x), None  # found


jax.lax.scan(body, 0.0, None, 3)
