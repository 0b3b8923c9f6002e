import time

import jax

f = jax.jit(lambda x: x * 2)


def measure(x):
    start = time.perf_counter()
    y = f(x)
    seconds = time.perf_counter() - start  # found
    return y, seconds
