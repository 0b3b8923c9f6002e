from functools import partial
from typing import NamedTuple

import jax


class State(NamedTuple):
    x: jax.Array

    @jax.jit
    def twice(self):
        return 2 * self.x


@jax.tree_util.register_pytree_node_class
class Node:
    @jax.jit
    def twice(self):
        return self


class Registered:
    @jax.jit
    def twice(self):
        return self


jax.tree_util.register_pytree_node(Registered, lambda r: ((), None), lambda *_: Registered())


class Plain:
    @staticmethod
    @jax.jit
    def twice(x):
        return 2 * x

    @partial(jax.jit, static_argnums=0)
    def thrice(self, x):
        return 3 * x
