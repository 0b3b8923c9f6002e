"""What a training step costs under `jaxtap_flax.train_step_monitor`, next to the same compiled step without it.

    python bench/train_step.py [--turns 15] [--steps 60] [--out bench/results]

The step is that of a small CNN on the digits of tests/data. Bare, `by=None` and `by="layer"` take turns in one process;
a turn is some steps after each other, until the result and all rows have arrived. Figures are medians over the turns,
and the ratio is the median of the ratios within a turn. Beside the clock's, the ratio of processor time, of all
threads, is told: it depends less on what else the machine does. It needs flax and optax.

On CPU, XLA runs a program that calls the host at once, and dispatches none ahead. What that alone costs is told by the
bare step, waited for each time.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import jaxtap_flax

HERE = Path(__file__).parent
AIMS = {"by=None": 1.05, "by='layer'": 1.10, "by='layer', activations": None}
BATCH = 320


class CNN(nn.Module):
    """Two convolutions and two dense layers, 79,000 parameters."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.avg_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(64, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


@jax.jit
def step(state: TrainState, images: Any, labels: Any) -> tuple[TrainState, Any]:
    """A step as users write it."""

    def loss_fn(params: Any) -> Any:
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def data() -> list[tuple[Any, Any]]:
    """The digits in batches."""
    digits = np.load(HERE.parent / "tests" / "data" / "digits.npz")
    images, labels = digits["images"][..., None] / np.float32(16.0), digits["labels"].astype(np.int32)
    cuts = [slice(i, i + BATCH) for i in range(0, len(labels), BATCH)]
    return [(jnp.asarray(images[cut]), jnp.asarray(labels[cut])) for cut in cuts]


Seconds = tuple[float, float]


def train(start: TrainState, batches: list[Any], steps: int, waiting: bool = False) -> Seconds:
    """Seconds a step, by the clock and of the processor; waiting for each step or only for the last."""
    state = start
    before, worked = time.perf_counter(), time.process_time()
    for i in range(steps):
        state, loss = step(state, *batches[i % len(batches)])
        if waiting:
            loss.block_until_ready()
    jax.block_until_ready(state.params)
    jax.effects_barrier()
    return (time.perf_counter() - before) / steps, (time.process_time() - worked) / steps


def watched(**options: Any) -> Callable[[TrainState, list[Any], int], Seconds]:
    """Training under a monitor."""

    def run(start: TrainState, batches: list[Any], steps: int) -> Seconds:
        with jaxtap_flax.train_step_monitor(**options) as monitor:
            seconds = train(start, batches, steps)
        assert len(monitor.rows) == steps
        return seconds

    return run


def measure(turns: int, steps: int) -> dict[str, list[Seconds]]:
    """Seconds a step, by case and turn."""
    batches = data()
    model = CNN()
    params = model.init(jax.random.key(0), batches[0][0])["params"]
    start = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    start = start.replace(step=jnp.int32(0))
    cases = {
        "bare": train,
        "bare, each step waited for": functools.partial(train, waiting=True),
        "by=None": watched(by=None),
        "by='layer'": watched(by="layer"),
        "by='layer', activations": watched(by="layer", activations=True),
    }
    for run in cases.values():
        run(start, batches, 2)
    seconds: dict[str, list[Seconds]] = {name: [] for name in cases}
    for turn in range(turns):
        order = list(cases) if turn % 2 else list(cases)[::-1]
        for name in order:
            seconds[name].append(cases[name](start, batches, steps))
    return seconds


def ratios(own: list[Seconds], bare: list[Seconds], which: int) -> list[float]:
    """A case over the bare step, turn by turn, least first."""
    return sorted(a[which] / b[which] for a, b in zip(own, bare, strict=True))


def table(seconds: dict[str, list[Seconds]]) -> list[str]:
    """The lines of a table."""
    lines = [
        "| case | ms a step | over bare | least and greatest | processor time over bare | aim |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, own in seconds.items():
        clock, work = (ratios(own, seconds["bare"], which) for which in (0, 1))
        ratio, aim = statistics.median(clock), AIMS.get(name)
        said = "" if aim is None else f"{aim:.2f}, {'met' if ratio <= aim else 'missed'}"
        ms = statistics.median(clock for clock, _ in own) * 1e3
        spread = f"{clock[0]:.3f} to {clock[-1]:.3f}"
        lines.append(f"| {name} | {ms:.2f} | {ratio:.3f} | {spread} | {statistics.median(work):.3f} | {said} |")
    return lines


def main() -> None:
    """Measure, print, and write where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    seconds = measure(chosen.turns, chosen.steps)
    head = f"Python {platform.python_version()}, jax {jax.__version__}, {os.cpu_count()} cores, load {load:.1f}"
    lines = [f"Training step of a CNN on the digits, batches of {BATCH}. {head}.", "", *table(seconds)]
    print("\n".join(lines))
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        name = f"train-step-jax{jax.__version__}"
        (chosen.out / f"{name}.md").write_text("\n".join(lines) + "\n")
        (chosen.out / f"{name}.json").write_text(json.dumps({"setting": head, "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
