import functools

import jax

for scale in range(3):
    f = jax.jit(lambda x, scale=scale: x * scale)  # found
    f(1.0)


def train(xs, g):
    for x in xs:
        jax.jit(functools.partial(g, 2.0))(x)  # found

        @jax.jit  # found
        def step(y):
            return y + 1

        step(x)
