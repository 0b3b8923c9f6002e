"""One of several processes that run a sharded scan together: `process.py PORT INDEX FOLDER HOW`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxtap as tap

LENSES: dict[str, dict[str, Any]] = {
    "whole": {},
    "shards": {"shards": True},
    "first": {"processes": [0]},
    "killed": {},
}


def step(c: Any, t: Any) -> Any:
    return jnp.sin(c) + c.mean() + t, c.sum()


def run(x: Any, length: int) -> Any:
    return lax.scan(step, x, jnp.arange(float(length)))


def main(port: str, index: str, folder: str, how: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=int(index))
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda at: np.arange(8, dtype=np.float32)[at])
    compiled = jax.jit(run, static_argnums=1)
    length = 2000 if how == "killed" else 5
    bare = [] if how == "killed" else local_bits(compiled(x, length))
    writer = tap.JSONLWriter(f"{folder}/run-{{process}}.jsonl")

    def on_step(event: tap.TapEvent) -> None:
        writer(event)
        if how == "killed":
            time.sleep(0.005)
            if index == "1" and event.step == 100:
                time.sleep(0.5)
                os._exit(9)

    with tap.record(on_step=on_step, **LENSES[how]) as rec:
        result = compiled(x, length)
        jax.block_until_ready(result)
    assert local_bits(result) == bare
    print(rec.report())
    writer.close()


def local_bits(tree: Any) -> list[bytes]:
    """The bytes of what this process holds of a result."""
    return [np.asarray(s.data).tobytes() for leaf in jax.tree.leaves(tree) for s in leaf.addressable_shards]


if __name__ == "__main__":
    main(*sys.argv[1:])
