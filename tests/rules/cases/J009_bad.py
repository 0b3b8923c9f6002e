import jax
from jax import lax

history = []
losses = []


@jax.jit
def step(x):
    y = x * 2
    history.append(y)  # found
    return y


def run(xs):
    def body(carry, x):
        losses.append(carry + x)  # found
        return carry, None

    return lax.scan(body, 0.0, xs)
