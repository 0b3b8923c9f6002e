from functools import partial

import jax


@partial(jax.jit, static_argnames=("sizes",))
def build(x, sizes: tuple[int, ...] = (), table={}):
    return x


build([1.0], sizes=(1, 2), table={"a": 1})
