import jax
from jax import random


def draw(key):
    x = jax.random.normal(key, (3,))
    y = jax.random.uniform(key, (3,))  # found
    return x + y


def loop(key):
    total = 0.0
    for _ in range(3):
        total += random.normal(key)  # found
    return total


def after_split(rng):
    keys = random.split(rng, 4)
    noise = random.normal(rng)  # found
    return keys, noise, [random.normal(rng) for _ in range(2)]  # found


def on_one_path(key, flag):
    x = 0.0
    if flag:
        x = random.normal(key)
    return x + random.normal(key)  # found


def elements(key):
    keys = random.split(key)
    return random.normal(keys[0]), random.normal(keys[1]), random.normal(keys[0])  # found


def not_aligned(key, x, y):
    first = random.permutation(key, x)
    return first, random.choice(key, y), random.permutation(key, x)  # found


def each_epoch_alike(key, data):
    for _ in range(3):
        order = random.permutation(key, len(data))  # found
        yield data[order]


def same_part(key):
    return random.normal(random.split(key)[0]) + random.normal(random.split(key)[0])  # found


def other_split(key, i):
    one = random.normal(random.split(key)[0])
    return one + random.normal(random.split(key, 3)[1]) + random.normal(random.split(key)[i])  # found
