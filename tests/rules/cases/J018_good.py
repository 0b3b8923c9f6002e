import jax
from jax import lax

traces = 0


@jax.jit
def f(x):
    global traces
    traces += 1
    out = {}
    out["y"] = x * 2
    return out


def kernel(x_ref, o_ref):
    def body(i, _):
        o_ref[i] = x_ref[i] * 2
        return None

    lax.fori_loop(0, 3, body, None)


def host(x):
    global traces
    traces = x * 2
