import jax
from jax import lax

count = 0
cache = {}


def run(xs):
    def body(carry, x):
        global count
        count += 1  # found
        cache["last"] = carry + x  # found
        return carry, x

    return lax.scan(body, 0.0, xs)


def keeps():
    last = None

    @jax.jit
    def f(x):
        nonlocal last
        last = x * 2  # found
        return x

    return f, last
