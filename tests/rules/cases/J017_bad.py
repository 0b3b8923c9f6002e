import jax


@jax.jit  # found
def train_step(params, opt_state, batch):
    updates, opt_state = optimizer.update(batch, opt_state, params)  # noqa: F821
    return params, opt_state


@jax.jit  # found
def apply(state, grads):
    state = state.apply_gradients(grads=grads)
    return state


def plain(params, opt_state):
    updates, new_opt_state = optimizer.update(params, opt_state)  # noqa: F821
    return updates, new_opt_state


step = jax.jit(plain)  # found
