"""Programs with collectives in their loops, in a process of their own, since a deadlock would end no test."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import jax
import jax.numpy as jnp
import numpy as np
from core import mesh_programs
from core.mesh_programs import X, manual, partly, put
from jax import lax

import jaxtap as tap

STEPS = 60


def implicit(x: Any) -> Any:
    return lax.scan(lambda c, t: (jnp.sin(c) + c.mean() + t, None), x, jnp.arange(float(STEPS)))[0]


def explicit(x: Any) -> Any:
    def body(c: Any, t: Any) -> tuple[Any, None]:
        row = lax.all_gather(c[0, 0], "x").mean()
        moved = lax.ppermute(c, "x", [(i, (i + 1) % 4) for i in range(4)])
        return jnp.sin(moved) + lax.psum(c, "x") * 0.01 + row + t, None

    return lax.scan(body, x, jnp.arange(float(STEPS)))[0]


PROGRAMS = {
    "implicit": implicit,
    "explicit": manual(explicit),
    "partly": partly(explicit),
    "lanes": mesh_programs.lanes,
}


@jax.jit
def _norm(x: Any) -> Any:
    return jnp.sqrt(jnp.sum(x * x))


def on_one_device(event: tap.TapEvent) -> None:
    float(_norm(np.asarray(event.value[-1], np.float32)))


def on_all_devices(_: tap.TapEvent) -> None:
    float(jax.jit(lambda x: x.sum())(put(X, "x", "y")))


LENSES: dict[str, dict[str, Any]] = {
    "whole": {},
    "shards": {"shards": True},
    "calls JAX": {"on_step": on_one_device},
    "calls JAX on all devices": {"on_step": on_all_devices, "sample_every": 10, "shards": True},
}


def main(lens: str) -> None:
    for name, run in PROGRAMS.items():
        f, x = jax.jit(run), put(X, "x", "y")
        bare = np.asarray(f(x)).tobytes()
        for _ in range(2):
            with tap.record(**LENSES[lens]) as rec:
                result = f(x)
            assert np.asarray(result).tobytes() == bare, name
            report = rec.report()
            assert report.ok and report.expected == len(rec.events), report
        print("done", name, len(rec.events), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
