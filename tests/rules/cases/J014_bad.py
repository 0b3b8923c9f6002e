from functools import partial

import jax


@partial(jax.jit, static_argnames=("sizes", "table"))
def build(x, sizes: list[int], table={}):  # found
    return x


build(1.0, (1, 2), table={"a": 1})  # found


def g(x, shape):
    return x


h = jax.jit(g, static_argnums=(1,))
h(1.0, [2, 3])  # found
