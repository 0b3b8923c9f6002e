import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def norm(x):
    size = np.prod(x.shape)
    scale = np.sqrt(2.0)
    return jnp.sum(x) * scale / size + np.float32(1.0)


@jax.jit
def outside(x):
    return jax.pure_callback(lambda v: np.sum(v), jax.ShapeDtypeStruct((), x.dtype), x)


def host(x):
    return np.sum(x)


def sample(x, state=None):
    if state is None:
        return np.sum(np.asarray(x))
    return jnp.sum(x)


sample_jit = jax.jit(sample)


def choose(x, state):
    return (sample if state is None else sample_jit)(x, state)
