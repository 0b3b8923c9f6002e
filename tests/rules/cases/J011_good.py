import jax


@jax.jit
def step(state, batch):
    return state, batch


def train(state, batches, tolerance):
    losses = []
    for i, batch in enumerate(batches):
        state, loss = step(state, batch)
        losses.append(loss)
        if i % 100 == 0:
            print(float(loss))
    total = float(sum(losses))
    while True:
        state, error = step(state, None)
        value = float(error)
        if value < tolerance:
            return total


def train_and_evaluate(state, batches, held_out):
    for i, batch in enumerate(batches):
        state, _ = step(state, batch)
        if i % 100 == 0:
            for name, held in held_out.items():
                _, loss = step(state, held)
                print(name, float(loss))
