import jax
from jax import lax

names = []


@jax.jit
def step(xs):
    out = []
    for x in xs:
        out.append(x * 2)

    def add(value):
        out.append(value * 2)

    add(xs[0])
    names.append("step")
    return out


def host(x):
    names.append(x * 2)


lax.scan(lambda c, x: (c, x), 0.0, None, 3)
