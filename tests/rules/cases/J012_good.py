import time

import jax

f = jax.jit(lambda x: x * 2)


def measure(x):
    start = time.perf_counter()
    f(x).block_until_ready()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    y = jax.block_until_ready(f(x))
    more = time.perf_counter() - start
    start = time.time()
    value = float(f(x))
    last = time.time() - start
    start = time.time()
    open("nothing")
    return y, value, seconds, more, last, time.time() - start
