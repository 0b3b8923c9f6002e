import jax


@jax.jit
def f(x, name="x"):
    jax.debug.print("x = {}", x)
    jax.debug.print(f"{name} = {{}}", x)
    jax.debug.print(f"shape {x.shape}: {{x}}", x=x)
    return x
