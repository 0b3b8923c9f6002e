"""One layer's gradient explodes 30 steps before the loss does.

One column of a wide-and-deep network is in kilometres, and of another scale than the others. While the learning rate
warms up, the layer that reads it turns unstable; for a while that is too little to be seen in the loss, which is all
that is logged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from telling import BUG, OUTPUT, USUAL, heading, panels, save, say

import jaxtap_flax

STEPS = 425


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def load() -> tuple[np.ndarray, np.ndarray]:
    """What 256 flats have: four columns, of which the last is the distance to the sea in kilometres; and their rent."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 4)).astype(np.float32)
    rent = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3] + 0.3 * rng.normal(size=256).astype(np.float32)
    return x * np.array([1, 1, 1, 4.65], np.float32), rent


class WideAndDeep(nn.Module):
    """A linear model and a network side by side (Cheng et al. 2016)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        wide = nn.Dense(1, name="wide")(x)
        deep = nn.tanh(nn.Dense(32, name="first")(x[:, :3]))
        deep = nn.tanh(nn.Dense(32, name="second")(deep))
        return (wide + nn.Dense(1, name="head")(deep))[:, 0]


def train(x: np.ndarray, y: np.ndarray) -> jax.Array:
    """The loss of each step, while the learning rate warms up."""
    model = WideAndDeep()
    rate = optax.linear_schedule(0.0, 0.05, transition_steps=300)
    params = model.init(jax.random.key(0), x)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.sgd(rate))

    def step(state: TrainState, _: None) -> tuple[TrainState, jax.Array]:
        def loss(params: Any) -> jax.Array:
            return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradient), value

    return jax.lax.scan(step, state, length=STEPS)[1]


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=0)) / x.std(axis=0)


# --- What happens to it --------------------------------------------------------------------------------------


def draw(monitor: Any, first: Any, spike: Any, folder: Path) -> None:
    figure, (above, below) = panels("The loss", "The norm of the gradient, by layer")
    rows = monitor.rows[STEPS // 2 :]
    steps = [row.step for row in rows]
    above.semilogy(steps, [row["loss"] for row in rows], color=USUAL)
    columns = sorted(name for name in rows[0].values if name.startswith("grad_norm/"))
    for column in columns:
        is_first = column == first.column
        label = first.layer if is_first else "the other layers" if column == columns[0] else None
        style = {"color": BUG if is_first else USUAL, "lw": 2 if is_first else 1, "label": label}
        below.semilogy(steps, [row[column] for row in rows], **style)
    for axes in (above, below):
        axes.axvline(
            first.row.step, color=BUG, lw=1.2, ls=":", label=f"gradient of {first.layer}: step {first.row.step}"
        )
        axes.axvline(spike.row.step, color="black", lw=1.2, ls="--", label=f"loss: step {spike.row.step}")
    above.legend(loc="upper left", title="Ten times its median")
    below.legend(*(each[:2] for each in below.get_legend_handles_labels()), loc="upper left")
    below.set(xlabel="step")
    save(figure, folder / "exploding_layer.png")


def main(folder: Path = OUTPUT) -> dict[str, Any]:
    x, y = load()

    heading("1. The symptom: a loss that is fine, until it is not")
    losses = train(x, y)
    say(f"Every 50th loss: {', '.join(f'{loss:.3g}' for loss in losses[::50])}. The last: {losses[-1]:.3g}.")

    heading("2. One line around the training")
    wires = [jaxtap_flax.layer_gradient_spike(), jaxtap_flax.loss_spike()]
    with jaxtap_flax.train_step_monitor(tripwires=wires) as monitor:
        train(x, y)
    first = monitor.trips[0]
    spike = next(trip for trip in monitor.trips if trip.tripwire == "loss_spike")
    lead = spike.row.step - first.row.step
    say(
        f"The gradient of {first.layer!r} was out of bounds at step {first.row.step}, {lead} steps before the loss, "
        f"whose value was {first.row['loss']:.3f} then. The layer reads columns with standard deviations "
        f"{', '.join(f'{deviation:.2f}' for deviation in x.std(axis=0))}."
    )

    heading("3. The fix: columns of one scale")
    with jaxtap_flax.train_step_monitor(tripwires=wires) as fixed:
        losses = train(normalised(x), y)
    say(f"Every 50th loss: {', '.join(f'{loss:.3g}' for loss in losses[::50])}. Tripwires: {len(fixed.trips)}.")
    draw(monitor, first, spike, folder)
    return {
        "path": first.row.path,
        "tripwire": first.tripwire,
        "layer": first.layer,
        "step": first.row.step,
        "lead": lead,
        "after": len(fixed.trips),
    }


if __name__ == "__main__":
    main()
