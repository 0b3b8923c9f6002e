import jax


def g(x):
    return x * 2


square = jax.jit(lambda y: y * y)
four = jax.jit(lambda y: y * y)(2.0)


def run(x):
    return jax.jit(g)(x)


def make():
    return jax.jit(lambda x: x + 1)


@jax.jit
def outer(x):
    return jax.jit(lambda y: y + 1)(x)


def main():
    jax.jit(lambda y: y + 1)(1.0)
