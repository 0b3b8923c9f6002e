import jax


@jax.jit
def loss(x):
    print("tracing loss", x.shape, x.dtype)
    print(f"shape {x.shape}")
    jax.debug.print("x = {}", x)
    jax.debug.callback(lambda value: print(value * 2), x)
    return x


def show(x):
    print(x)
