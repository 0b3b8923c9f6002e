import jax
from jax import random


def draw(key):
    key, sub = random.split(key)
    x = random.normal(sub)
    key, sub = random.split(key)
    return x + random.normal(sub)


def branches(key, flag):
    if flag:
        return random.normal(key)
    return random.uniform(key)


def one_of(key, flag):
    return random.normal(key) if flag else random.uniform(key)


def loop(key, keys):
    total = 0.0
    for i in range(3):
        total += random.normal(random.fold_in(key, i))
    for k in keys:
        total += random.normal(k)
    while total < 3:
        key, sub = random.split(key)
        total += random.normal(sub)
    return total + sum(random.normal(k) for k in random.split(key, 3))


def elements(key):
    keys = random.split(key, 2)
    return random.normal(keys[0]) + random.normal(keys[1])


def leaves(key, n):
    for i in range(n):
        if i > 3:
            return random.normal(key)
    raise ValueError(random.fold_in(key, 1), jax.random.key_data(key))


def aligned(key, xs, ys, arrays):
    xs, ys = random.permutation(key, xs), random.permutation(key, ys)
    return xs, ys, [random.permutation(random.fold_in(key, 1), a) for a in arrays]


def several(key, arrays):
    return [random.permutation(key, a) for a in arrays]


def test_draw(key):
    x = random.normal(key)
    assert x == random.normal(key)


class Test:
    def test_sum(self, k1, k2):
        self.assertEqual(draw(k1), random.normal(k1) + random.normal(k2))
        self.assertDictEqual(draw(k2), {"x": random.normal(k1), "y": random.normal(k1)})


def parts(key):
    return random.normal(random.split(key)[0]) + random.normal(random.split(random.split(key)[1])[0])
