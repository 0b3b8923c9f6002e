import jax

scale = 1.0


@jax.jit
def f(x):
    return x * scale  # found


def set_scale(value):
    global scale
    scale = value
