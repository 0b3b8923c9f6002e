"""A NaN that exists only in the gradient.

A curling stone slides until friction stops it, and gradient descent looks for the push that brings it to its mark. The
simulation is finite throughout, and so is the loss. The gradient is not, and `optax.zero_nans` makes it zero.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from telling import heading, say

import jaxtap as tap

STEPS, SECONDS, FRICTION = 60, 0.1, 1.0
MARK = jnp.array([6.0, 2.0])


# --- The program, which knows nothing of jaxtap --------------------------------------------------------------


def direction(velocity: jax.Array) -> jax.Array:
    """The unit vector along a velocity; zero for a stone at rest."""
    speed = jnp.sqrt(jnp.sum(velocity**2))
    return jnp.where(speed > 0, velocity / speed, 0.0)


def safe_direction(velocity: jax.Array) -> jax.Array:
    """The same, without a division by zero in the branch that is not taken."""
    square = jnp.sum(velocity**2)
    moves = square > 0
    return jnp.where(moves, velocity / jnp.sqrt(jnp.where(moves, square, 1.0)), 0.0)


def miss(push: jax.Array, unit: Any) -> jax.Array:
    """The squared distance from the mark at which the stone comes to rest."""

    def step(stone: dict[str, jax.Array], _: None) -> tuple[dict[str, jax.Array], None]:
        speed = jnp.vdot(stone["velocity"], unit(stone["velocity"]))
        velocity = jnp.maximum(speed - FRICTION * SECONDS, 0.0) * unit(stone["velocity"])
        return {"position": stone["position"] + velocity * SECONDS, "velocity": velocity}, None

    start = {"position": jnp.zeros(2), "velocity": push}
    stone, _ = jax.lax.scan(step, start, length=STEPS)
    return jnp.sum((stone["position"] - MARK) ** 2)


def aim(unit: Any, rounds: int = 100) -> tuple[jax.Array, jax.Array]:
    """The push that gradient descent finds, and the loss in each round."""
    optimizer = optax.chain(optax.zero_nans(), optax.adam(0.1))

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        push, state = carry
        loss, gradient = jax.value_and_grad(miss)(push, unit)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(push, updates), state), loss

    push = jnp.array([2.0, 0.0])
    (push, _), losses = jax.lax.scan(step, (push, optimizer.init(push)), length=rounds)
    return push, losses


# --- What happens to it --------------------------------------------------------------------------------------


def told(push: jax.Array, losses: jax.Array) -> str:
    by_round = f"{losses[0]:.3f}, {losses[1]:.3f}, ... {losses[-1]:.3f}"
    return f"squared distance from the mark {by_round}; push ({push[0]:.2f}, {push[1]:.2f})"


def main() -> dict[str, Any]:
    heading("1. The symptom: a loss that is finite, and stays where it is")
    push, losses = aim(direction)
    say(f"By round: {told(push, losses)}.")
    with tap.record(taps=[tap.watch_nan(inner=True)]) as forward:
        aim(direction)
    say(f"NaNs in the state of any loop, at any step: {len(forward.events)}.")

    heading("2. One line around the call")
    with tap.record(taps=[tap.watch_nan(backward=True, once=True)]) as rec:
        aim(direction)
    event = rec.events[0]
    bad = [name for name, count in event.value.items() if count]
    say(
        f"The gradient pass of round {event.outer[0]} turns NaN at step {event.step} of {event.path}, in {bad[0]}. So "
        f"do those of all {len(rec.events)} rounds. The code: {event.source}."
    )
    with tap.record(select="velocity") as rec:
        miss(push, direction)
    still = [e.step for e in rec.events if not e.value.any()]
    say(
        f"There the stone is at rest, as it is from step {still[0]} on. `jnp.where` chooses 0 for its direction, but "
        "in the gradient the other branch, 0 / 0, counts zero times, and zero times NaN is NaN."
    )

    heading("3. The fix: `where` inside, too")
    with tap.record(taps=[tap.watch_nan(backward=True)]) as fixed:
        push, losses = aim(safe_direction)
    say(f"By round: {told(push, losses)}. NaNs in the gradient pass: {len(fixed.events)}.")
    return {
        "path": event.path,
        "step": event.step,
        "outer": event.outer,
        "leaves": bad,
        "forward": len(forward.events),
        "at rest from": still[0],
        "after": len(fixed.events),
    }


if __name__ == "__main__":
    main()
