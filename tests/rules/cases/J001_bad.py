import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def clip(x, limit):
    if x > limit:  # found
        return limit
    return x


@jax.jit
def check(x: jax.Array):
    assert x  # found
    y = jnp.sum(x) if jnp.any(x > 0) else 0.0  # found
    return y


def body(state):
    if not (state.error > 1.0):  # found
        return state
    while state.error > 0.1:  # found
        state = state.next
    return state


lax.while_loop(lambda s: s[0] > 1 and s[1] > 2, body, (1.0, 2.0))  # found
