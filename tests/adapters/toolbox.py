"""A little library, as an adapter meets it: a class whose method takes a step, which user code calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxtap.internal import (
    ByIdentity,
    Choices,
    NonFinite,
    OnColumn,
    Outside,
    Patch,
    Plan,
    Selection,
    View,
    Watch,
    hook_settings,
    mark_for,
)


class Stepper:
    """What is hooked."""

    def advance(self, state: Any, gradient: Any) -> Any:
        """A step of gradient descent."""
        return {"w": state["w"] - 0.1 * gradient, "t": state["t"] + 1}


class Faster(Stepper):
    """One that inherits the step."""


def around(advance: Any) -> Any:
    """The step, with what it was given marked."""

    def hooked(self: Any, state: Any, gradient: Any) -> Any:
        new = advance(self, state, gradient)
        if hook_settings("toolbox"):
            mark_for("toolbox", "advance", {"state": state, "gradient": gradient}, outside=("adapters",))
        return new

    return hooked


def norms(leaves: Any) -> dict[str, Any]:
    """What is sent: the step, and two norms."""
    tree = leaves.tree()
    return {
        "step": tree["state"]["t"],
        "gradient": jnp.sqrt(jnp.sum(tree["gradient"] ** 2)),
        "weights": jnp.sqrt(jnp.sum(tree["state"]["w"] ** 2)),
    }


def every_third(leaves: Any) -> Any:
    """Which steps are sent."""
    return leaves.tree()["state"]["t"] % 3 == 0


TRIPWIRES = (
    OnColumn("small", "weights", Outside(low=0.5), "weights {value:.3g} are small (< {rule.low})"),
    OnColumn("finite", "gradient", NonFinite(), "gradient {value}"),
)


def watch(tripwires: Any = (), every_third_only: bool = False, **choices: Any) -> Watch:
    """A watch on the library."""
    gate = ByIdentity(every_third) if every_third_only else None
    selection = Selection(function=ByIdentity(norms), gate=gate)
    plan = Plan(
        name="toolbox.watch",
        view=View(select=None, marks=((("advance",), selection),), hooks=(("toolbox", ()),)),
        columns=lambda event: event.value if event.kind == "mark" else None,
        looked_for="calls of Stepper.advance",
        patches=lambda: [Patch(Stepper, "advance", around)],
        first=("gradient", "weights"),
    )
    return Watch(plan, Choices(tripwires=tuple(tripwires), **choices))


@jax.jit
def loss(w: Any) -> Any:
    """What is made small."""
    return jnp.sum(jnp.sin(w) * w)


def train_step(state: Any, stepper: Stepper = Faster()) -> Any:  # noqa: B008 - it holds no state
    """A user's own step."""
    return stepper.advance(state, jax.grad(loss)(state["w"]))


def start() -> Any:
    """Where training begins."""
    return {"w": jnp.array([0.7, -1.1, 0.4]), "t": jnp.int32(0)}


def in_python(step: Any, count: int = 5) -> Any:
    """Training as a Python loop."""
    state = start()
    for _ in range(count):
        state = step(state)
    return state


def in_scan(count: int = 5) -> Any:
    """Training as a scan."""
    return jax.lax.scan(lambda state, _: (train_step(state), None), start(), None, length=count)[0]
