import jax


@jax.jit
def loss(x):
    y = x * 2
    print("y", y)  # found
    print(f"y = {y}")  # found
    return y
