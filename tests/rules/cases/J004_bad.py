import jax


@jax.jit
def f(x):
    jax.debug.print(f"x = {x}")  # found
    jax.debug.print("x = {}".format(x))  # found
    jax.debug.print("x = %s" % x)  # found
    return x
