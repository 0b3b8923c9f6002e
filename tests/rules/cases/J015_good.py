import jax

SCALE = 1.0
count = 0


@jax.jit
def f(x, factor):
    return x * SCALE * factor


def bump():
    global count
    count += 1
    return count
