import jax

f = jax.jit(lambda x: x * 2)
for x in range(3):
    f(x)


def g(x):
    return x


for _ in range(3):
    jax.jit(g)(1.0)


def compile_all(functions):
    compiled = {}
    for name, function in functions.items():
        compiled[name] = jax.jit(lambda x, function=function: function(x))
    return compiled, [jax.jit(lambda x, n=n: x + n) for n in range(3)]
