import jax


@jax.jit
def step(state, batch):
    return state, batch


def train(state, batches):
    losses = []
    for batch in batches:
        state, loss = step(state, batch)
        losses.append(float(loss))  # found
        print(loss.item())  # found
    return losses
