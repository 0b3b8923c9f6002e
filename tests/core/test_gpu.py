"""On a GPU: the result stays what it is, and each step is seen once. Skipped where there is none."""

from __future__ import annotations

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core.programs import PROGRAMS
from jax import lax

import jaxtap as tap

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU, and JAX_PLATFORMS=cuda,cpu"),
]

V = np.array([0.3, -0.2, 0.7, 1.1], np.float32)
LANES = np.stack([V, V * np.float32(1.1), V + np.float32(0.01)])
SIZES = [4, 4096]

NAMES = ["scan", "fori", "while", "while_by_value", "mapped", "reverse", "unrolled", "scan_while_scan", "cond_in_body"]
NAMES += ["checkpoint_in_body", "in_custom_jvp", "matrix", "named", "keyed", "many_types", "without_trips", "empty"]
LENSES: dict[str, dict[str, Any]] = {
    "outputs": {"select_ys": lambda leaves: tuple(leaves)},
    "equations": {"taps": [tap.on(["sin", "cos"])]},
    "watch_nan": {"taps": [tap.watch_nan()]},
    "last": {"last": 2},
    "sampled": {"sample_every": 2},
}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def seen(f: Any, x: Any, **lens: Any) -> list[tap.TapEvent]:
    """The events of a run, whose result is checked to be that of a bare one."""
    bare = f(x)
    with tap.record(**lens) as rec:
        result = f(x)
    assert bits(result) == bits(bare)
    assert [leaf.devices() for leaf in jax.tree.leaves(result)] == [leaf.devices() for leaf in jax.tree.leaves(bare)]
    report = rec.report()
    assert not report.failures and report.expected == report.delivered == len(rec.events)
    return list(rec.events)


def carries(events: list[tap.TapEvent]) -> dict[str, int]:
    return dict(collections.Counter(event.path for event in events if event.kind == "carry"))


@pytest.mark.parametrize("lens", LENSES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:jaxtap.*no:UserWarning")
def test_programs(name: str, lens: str) -> None:
    events = seen(jax.jit(PROGRAMS[name].run), V, **LENSES[lens])
    if lens in ("outputs", "equations"):
        assert carries(events) == PROGRAMS[name].loops


@pytest.mark.parametrize("name", ["scan", "while", "scan_while_scan", "matrix"])
def test_lanes(name: str) -> None:
    events = seen(jax.jit(jax.vmap(PROGRAMS[name].run)), LANES)
    assert carries(events) == {path: 3 * n for path, n in PROGRAMS[name].loops.items()}
    assert {event.lane for event in events} == {(0,), (1,), (2,)}


@pytest.mark.parametrize("size", SIZES)
def test_values(size: int) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) * 0.9 + t, c * t), x, jnp.arange(6.0))

    x = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    events = seen(jax.jit(run), x, select_ys=lambda leaves: leaves[0], select=lambda leaves: leaves[0])
    carry, ys = map(np.asarray, jax.jit(run)(x))
    outputs = [event.value for event in events if event.kind == "output"]
    assert [event.step for event in events if event.kind == "carry"] == list(range(6))
    assert np.array_equal(np.stack(outputs), ys)
    assert np.array_equal([e.value for e in events if e.kind == "carry"][-1], carry)


@pytest.mark.parametrize("size", SIZES)
def test_gradients(size: int) -> None:
    def loss(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) * t, c), x, jnp.arange(1.0, 5.0))[0].sum()

    x = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    events = seen(jax.jit(jax.grad(loss)), x, backward=True, select_backward=tap.norm)
    assert [event.step for event in events if event.kind == "backward"] == [3, 2, 1, 0]
    assert carries(events) == {"scan[0]": 4}


@pytest.mark.parametrize("size", SIZES)
def test_watch_nan(size: int, capsys: Any) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.log(c) + t, None), x, jnp.array([0.1, 0.2, 0.3, 0.4]))[0]

    (event,) = seen(jax.jit(run), np.full(size, 2.0, np.float32), taps=[tap.watch_nan()])
    assert (event.path, event.step, event.value["nan"]) == ("scan[0]/log[0]", 2, size)
    assert "scan[0]/log[0] 2/4: NaN/Inf" in capsys.readouterr().err


def test_live_and_in_order() -> None:
    heard: list[int] = []

    def run(x: Any) -> Any:
        return lax.fori_loop(0, 50, lambda i, c: c @ c * 0.5 + i, x)

    result = jax.jit(tap.verbose(run, on_step=lambda event: heard.append(event.step)))(np.eye(64, dtype=np.float32))
    jax.block_until_ready(result)
    jax.effects_barrier()
    assert heard == list(range(50))


def test_marks_and_outside_of_loops() -> None:
    def run(x: Any) -> Any:
        x = tap.mark("start", jnp.sin(x) * x)
        return lax.scan(lambda c, t: (tap.mark("inside", c * t) + c, None), x, jnp.arange(3.0))[0]

    events = seen(jax.jit(run), V, taps=[tap.on("sin")], ops=())
    assert dict(collections.Counter((e.path, e.kind) for e in events)) == {
        ("sin[0]", "primitive"): 1,
        ("start[0]", "mark"): 1,
        ("scan[0]/inside[0]", "mark"): 3,
    }


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two GPUs")
def test_shards() -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = jax.device_put(np.arange(8.0 * jax.device_count(), dtype=np.float32), sharding)
    events = seen(jax.jit(PROGRAMS["scan"].run), x, shards=True)
    assert {event.device for event in events} == set(range(jax.device_count()))
