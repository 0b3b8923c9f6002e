"""Two processes, one sharded loop, one merged record.

Each of two processes loads its part of the data, and one loop fits a line to all of it. The fit converges, in both
processes alike. It is wrong: both have loaded the same part.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from telling import heading, say

import jaxtap as tap

PROCESSES, DEVICES, ROWS, STEPS = 2, 2, 32, 40
TIMEOUT_S = 120


# --- The program that each process runs ----------------------------------------------------------------------


def load(part: int) -> np.ndarray:
    """A part of the table: columns x and y, the slope 2 for negative x, 3 for positive."""
    x = np.linspace(-1.0, 1.0, ROWS, dtype=np.float32).reshape(PROCESSES, -1)[part]
    return np.stack([x, np.where(x < 0, 2 * x, 3 * x)], axis=1)


@jax.jit
def fit(rows: jax.Array) -> dict[str, jax.Array]:
    """The slope by gradient descent, and what is left of each row."""
    x, y = rows[:, 0], rows[:, 1]

    def step(line: dict[str, jax.Array], _: None) -> tuple[dict[str, jax.Array], None]:
        slope = line["slope"] + 0.5 * jnp.mean(line["residual"] * x)
        return {"slope": slope, "residual": y - slope * x}, None

    return jax.lax.scan(step, {"slope": jnp.float32(0.0), "residual": y}, length=STEPS)[0]


def work(part_by: str, folder: str) -> None:
    """One process: load its part, fit with the others. The record is the one line that the demo adds."""
    rank = int(os.environ["RANK"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{os.environ['MASTER_PORT']}", PROCESSES, rank)
    mesh = jax.make_mesh((PROCESSES * DEVICES,), ("rows",), axis_types=(AxisType.Auto,))
    part = load(int(os.environ[part_by]))
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("rows")), part, (ROWS, 2))
    writer = tap.JSONLWriter(f"{folder}/run-{{process}}.jsonl")
    with writer, tap.record(select=["slope", "residual"], shards=True, on_step=writer):
        jax.block_until_ready(fit(rows))


# --- What happens to it --------------------------------------------------------------------------------------


def launch(part_by: str, folder: str) -> list[tap.TapEvent]:
    """Start the processes as a launcher does that puts one on each host, and put their records together."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = {"MASTER_PORT": str(port), "LOCAL_RANK": "0", "JAX_PLATFORMS": "cpu"}
    common["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    command = [sys.executable, __file__, "--worker", part_by, folder]
    running = [
        subprocess.Popen(
            command,
            env=os.environ | common | {"RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(PROCESSES)
    ]
    try:
        told = [process.communicate(timeout=TIMEOUT_S)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    for process, errors in zip(running, told, strict=True):
        if process.returncode:
            raise RuntimeError(f"a process ended with status {process.returncode}:\n{errors}")
    return tap.read_jsonl(f"{folder}/run-*.jsonl")


def leaf(event: tap.TapEvent, name: str) -> Any:
    return event.value[f"line['{name}']"]


def by_device(events: list[tap.TapEvent]) -> dict[int, np.ndarray]:
    """What is left of the rows that each device has, step by step."""
    devices = sorted({event.device for event in events})
    return {d: np.stack([leaf(event, "residual") for event in events if event.device == d]) for d in devices}


def alike(events: list[tap.TapEvent]) -> list[tuple[int, int]]:
    """Pairs of devices whose rows leave the same, bit for bit, at every step."""
    left = by_device(events)
    return [(a, b) for a, b in itertools.combinations(left, 2) if np.array_equal(left[a], left[b])]


def run(part_by: str) -> list[tap.TapEvent]:
    with tempfile.TemporaryDirectory() as folder:
        return launch(part_by, folder)


def main() -> dict[str, Any]:
    heading("1. The symptom: a fit that converges, in both processes alike")
    events = run("LOCAL_RANK")
    slopes = {float(leaf(event, "slope")) for event in events if event.step == STEPS - 1}
    say(f"Slope after {STEPS} steps, on all devices: {', '.join(f'{slope:.3f}' for slope in slopes)}.")

    heading("2. One line in the program: `tap.record(..., shards=True, on_step=writer)`")
    processes = {p: sorted({e.device for e in events if e.process == p}) for p in range(PROCESSES)}
    say(
        f"The merged record holds {len(events)} events of {events[0].path}: "
        f"{', '.join(f'process {p} with devices {d}' for p, d in processes.items())}."
    )
    pairs = alike(events)
    say(
        f"At each of the {STEPS} steps, devices {' and '.join(map(str, pairs))} have the same residuals, bit for bit: "
        "the processes have loaded the same rows. LOCAL_RANK counts the processes of one host, and is 0 on both."
    )

    heading("3. The fix: RANK")
    fixed = run("RANK")
    slope = float(leaf(fixed[-1], "slope"))
    say(f"Slope after {STEPS} steps: {slope:.3f}. Devices with the same residuals: {len(alike(fixed))} pairs.")
    return {
        "path": events[0].path,
        "events": len(events),
        "processes": processes,
        "alike": pairs,
        "alike after": alike(fixed),
        "slopes": (float(leaf(events[-1], "slope")), slope),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
    else:
        main()
