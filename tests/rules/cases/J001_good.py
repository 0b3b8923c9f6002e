from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, static_argnames=("mode", "depth"))
def apply(x, mode, depth, scale=None, flag=True):
    if mode == "train" and depth > 3:
        x = x * 2
    if scale is None or scale > 0:
        x = x + 1
    if flag:
        x = -x
    if x.ndim == 2 and x.shape[0] > 1 and jnp.issubdtype(x.dtype, jnp.floating):
        x = x.T
    if isinstance(x, float) and x > 0:
        return x
    return jnp.where(x > 0, x, 0.0)


@jax.jit
def either(batch, x):
    if batch:
        return jnp.sum(x)
    if "extra" in batch:
        return x
    with jax.ensure_compile_time_eval():
        if jnp.any(jnp.arange(3) > 1):
            x = x + 1
    return lax.cond(x > 0, lambda: 1.0, lambda: 2.0)


def eager(x):
    return 1 if x > 0 else jnp.sum(x)


def knows(x):
    if not isinstance(x, jax.core.Tracer) and x > 0:
        return x
    return -x


step = jax.jit(knows)
