from functools import partial

import jax


@partial(jax.jit, donate_argnames=("params", "opt_state"))
def train_step(params, opt_state, batch):
    updates, opt_state = optimizer.update(batch, opt_state, params)  # noqa: F821
    return params, opt_state


@jax.jit
def evaluate(params, opt_state, batch):
    return batch, params


def not_compiled(params, opt_state):
    updates, opt_state = optimizer.update(params, opt_state)  # noqa: F821
    return updates, opt_state
