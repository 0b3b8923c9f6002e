"""Several devices: the program stays what it is, each has its events, and looking at a shard gathers nothing."""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core import mesh_programs
from core.mesh_programs import ALL, LANE_STEPS, PROGRAMS, X, lanes_in_map, manual, mesh, put
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxtap as tap

COLLECTIVES = ("all-reduce", "all-gather", "collective-permute", "all-to-all", "reduce-scatter")
# Their steps are done twice, in a copy that sends, so that the copy has the collectives of the step, too.
COPIED = ("scan", "nested", "while", "grad", "chains", "lanes", "marked")

TAPS: dict[str, dict[str, Any]] = {
    "outputs": {"select_ys": lambda leaves: tuple(leaves)},
    "equations": {"taps": [tap.on("sin")]},
    "watch_nan": {"taps": [tap.watch_nan()]},
    "watch_nan by name": {"taps": [tap.watch_nan("sin")]},
    "trip": {"taps": [tap.trip(lambda leaves: leaves[-1].sum() > 1e9)]},
    "backward": {"backward": True, "select_backward": tap.norm},
    "watch_nan backward": {"taps": [tap.watch_nan(backward=True)]},
    "last": {"last": 2},
    "sampled": {"sample_every": 2},
}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def kept(result: Any, bare: Any) -> bool:
    """Whether bits, shardings, layouts and types are those of the bare program."""
    pairs = list(zip(jax.tree.leaves(result), jax.tree.leaves(bare), strict=True))
    same = all(r.sharding == b.sharding and r.format == b.format for r, b in pairs)
    return same and all(jax.typeof(r) == jax.typeof(b) for r, b in pairs) and bits(result) == bits(bare)


def compiled_text(f: Any, x: Any) -> str:
    return jax.jit(lambda x: f(x)).lower(x).compile().as_text()


def collectives(text: str) -> dict[str, int]:
    found = re.findall(rf"= .*? ({'|'.join(COLLECTIVES)})(?:-start)?\(", text)
    return dict(collections.Counter(found))


def counted(events: Any) -> dict[tuple[str, int], int]:
    return dict(collections.Counter((event.path, event.device) for event in events if event.kind == "carry"))


def is_accounted(rec: tap.FlightRecorder) -> bool:
    report = rec.report()
    return not report.failures and report.expected == report.delivered == len(rec.events)


def part(whole: Any, own: Any, device: int) -> Any:
    """What a device has of a whole value: a quarter of its last axis but one, and half of its last one."""
    if own.ndim > 1 and own.shape[-2] != whole.shape[-2]:
        whole = np.split(whole, 4, axis=-2)[device // 2]
    if own.ndim and own.shape[-1] != whole.shape[-1]:
        whole = np.split(whole, 2, axis=-1)[device % 2]
    return whole


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_values(name: str) -> None:
    program = PROGRAMS[name]
    f, x = jax.jit(program.run), put(X, "x", "y")
    bare = f(x)
    with tap.record(marks=()) as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec) and rec.report().ok
    assert counted(rec.events) == {(path, d): n for path, n in program.loops.items() for d in program.devices}
    assert {e.value[-1].shape for e in rec.events if "/" not in e.path} == {program.shape}
    for path in program.loops:
        for device in program.devices:
            found = [e for e in rec.events if (e.path, e.device) == (path, device)]
            assert [(e.call, e.step) for e in found] == sorted((e.call, e.step) for e in found)
            assert {e.call for e in found} == set(range(len({e.outer for e in found})))


@pytest.mark.parametrize("name", PROGRAMS)
def test_shards(name: str) -> None:
    program = PROGRAMS[name]
    f, x = jax.jit(program.run), put(X, "x", "y")
    bare, text = f(x), compiled_text(program.run, x)
    with tap.record(marks=()) as rec:
        f(x)
    whole = {(e.path, e.lane, e.outer, e.step, e.device if len(program.devices) == 8 else 0): e for e in rec.events}
    with tap.record(marks=(), shards=True) as rec:
        result = f(x)
        own_text = compiled_text(program.run, x)
    assert kept(result, bare) and is_accounted(rec) and rec.report().ok
    if program.lanes == 1:
        assert counted(rec.events) == {(path, d): n for path, n in program.loops.items() for d in ALL}
    assert {e.value[-1].shape for e in rec.events if "/" not in e.path} == {program.own}
    for event in rec.events:
        if len(program.devices) == 4:
            continue
        each = len(program.devices) == 8
        of_all = whole[event.path, event.lane, event.outer, event.step, event.device if each else 0].value
        for own, value in zip(event.value, of_all, strict=True):
            assert np.array_equal(own, value if each else part(value, own, event.device))
    found, of_bare = collectives(own_text), collectives(text)
    assert found.keys() <= of_bare.keys() if name in COPIED else found == of_bare


@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
@pytest.mark.parametrize("name", ["nested", "manual, nested", "partly manual"])
def test_eagerly(name: str, shards: bool) -> None:
    program, x = PROGRAMS[name], put(X, "x", "y")
    bare = program.run(x)
    with tap.record(shards=shards) as rec:
        result = program.run(x)
    assert kept(result, bare) and is_accounted(rec)
    assert counted(rec.events) == {
        (path, d): n for path, n in program.loops.items() for d in (ALL if shards else program.devices)
    }


def test_collectives_are_found() -> None:
    """The whole of a sharded value is gathered, which the counting sees."""
    with tap.record():
        found = collectives(compiled_text(mesh_programs.large, put(X, "x", "y")))
    assert "all-gather" in found and "all-gather" not in collectives(
        compiled_text(mesh_programs.large, put(X, "x", "y"))
    )


@pytest.mark.parametrize("every", [1, 2])
def test_lanes_that_a_device_has(every: int) -> None:
    x = put(X, "x", "y")
    with tap.record(shards=True, sample_every=every) as rec:
        jax.jit(mesh_programs.lanes)(x)
    outer = {(e.device, e.lane, e.step) for e in rec.events if e.path == "while[0]"}
    own = lambda device: (2 * (device // 2), 2 * (device // 2) + 1)  # noqa: E731
    assert outer == {(d, (lane,), s) for d in ALL for lane in own(d) for s in range(0, LANE_STEPS[lane], every)}
    inner = {(e.device, e.lane, e.outer, e.step) for e in rec.events if e.path != "while[0]"}
    assert inner == {
        (d, (lane,), (s,), i)
        for d in ALL
        for lane in own(d)
        for s in range(LANE_STEPS[lane])
        for i in range(0, 2, every)
    }
    assert len(outer) + len(inner) == len(rec.events) and is_accounted(rec)


def test_two_lane_axes() -> None:
    def run(x: Any) -> Any:
        return jax.vmap(jax.vmap(lambda v: lax.fori_loop(0, 2, lambda i, c: c * 2.0 + i, v)))(x)

    with tap.record(shards=True, select=lambda leaves: leaves[-1]) as rec:
        result = np.asarray(jax.jit(run)(put(X, "x", "y")))
    last = {(e.device, e.lane): float(e.value) for e in rec.events if e.step == 1}
    assert last == {
        (d, (2 * (d // 2) + i, 2 * (d % 2) + j)): float(result[2 * (d // 2) + i, 2 * (d % 2) + j])
        for d in ALL
        for i in range(2)
        for j in range(2)
    }


def test_lanes_that_do_not_divide_evenly() -> None:
    def run(x: Any) -> Any:
        x = lax.with_sharding_constraint(x, NamedSharding(mesh(), P("x")))
        return jax.vmap(lambda v: lax.fori_loop(0, 2, lambda i, c: c * 2.0 + i, v))(x)

    with tap.record(shards=True) as rec:
        result = np.asarray(jax.jit(run)(put(X[:6], None, "y")))
    last = [event for event in rec.events if event.step == 1]
    # What the fourth pair of devices has is filled up.
    assert {(e.device, e.lane) for e in last} == {(d, (2 * (d // 2) + i,)) for d in range(6) for i in range(2)}
    assert all(np.array_equal(e.value[-1], result[e.lane]) for e in last) and is_accounted(rec)


def test_keys_and_narrow_types() -> None:
    def lane(key: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            noise = jax.random.normal(c[0], dtype=jnp.bfloat16)
            return (jax.random.fold_in(c[0], 1), c[1] + noise, c[2] + jnp.int4(3)), None

        return lax.scan(step, (key, jnp.bfloat16(0.0), jnp.int4(-8)), None, length=2)[0]

    keys = put(jax.random.split(jax.random.key(0), 8), "x")
    with tap.record(shards=True) as rec:
        result = jax.jit(jax.vmap(lane))(keys)
    last = [event for event in rec.events if event.step == 1]
    assert {(e.device, e.lane) for e in last} == {(d, (2 * (d // 2) + i,)) for d in ALL for i in range(2)}
    for event in last:
        key, *others = event.value
        assert bits(jax.random.key_data(key)) == bits(jax.random.key_data(result[0][event.lane]))
        assert bits(others) == bits([leaf[event.lane] for leaf in result[1:]])


@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
@pytest.mark.parametrize("lens", TAPS)
@pytest.mark.parametrize("name", ["scan", "lanes", "marked", "manual", "manual, gradient", "partly manual"])
@pytest.mark.filterwarnings("ignore:jaxtap.*no:UserWarning")
def test_every_kind_of_tap(name: str, lens: str, shards: bool) -> None:
    f, x = jax.jit(PROGRAMS[name].run), put(X, "x", "y")
    bare = f(x)
    with tap.record(shards=shards, **TAPS[lens]) as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec)
    devices = ALL if shards else PROGRAMS[name].devices
    assert {event.device for event in rec.events} in (set(devices), set())


@pytest.mark.parametrize("kind", ["automatic", "manual"])
def test_a_nan_is_traced_to_its_equation(kind: str, capsys: Any) -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.log(c) + t, None), x, jnp.array([0.1, 0.2, 0.3]))[0]

    f = jax.jit(run if kind == "automatic" else manual(run))
    with tap.record(taps=[tap.watch_nan()]) as rec:
        f(put(np.where(X > 3.0, 2.0, 100.0).astype(np.float32), "x", "y"))
    assert {(e.path, e.step) for e in rec.events} == {("scan[0]/log[0]", 2)}
    assert {e.device for e in rec.events} == ({0} if kind == "automatic" else {7})
    assert "scan[0]/log[0]" in capsys.readouterr().err


def test_each_device_at_its_own_pace() -> None:
    f, x = jax.jit(manual(mesh_programs.own_pace)), put(X, "x", "y")
    bare = f(x)
    with tap.record() as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec) and rec.report().ok
    steps = {d: d // 2 + 1 for d in ALL}
    assert counted(rec.events) == {("while[0]", d): n for d, n in steps.items()} | {
        ("while[0]/scan[0]", d): 2 * n for d, n in steps.items()
    }
    loop = next(loop for loop in rec.report().loops if loop.path == "while[0]")
    assert (loop.executions, loop.unfinished) == (8, 0)


def test_a_branch_that_some_devices_take() -> None:
    f, x = jax.jit(manual(mesh_programs.branching)), put(X, "x", "y")
    bare = f(x)
    with tap.record() as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec) and rec.report().ok
    assert counted(rec.events) == {("scan[0]", d): 4 for d in ALL} | {
        ("scan[0]/cond[0]/b1/scan[0]", d): 8 for d in ALL[1::2]
    }


def test_lanes_in_a_shard_map() -> None:
    f, x = jax.jit(manual(lanes_in_map)), put(X, "x", "y")
    bare = f(x)
    with tap.record() as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec)
    assert {(e.device, e.lane) for e in rec.events} == {(d, (lane,)) for d in ALL for lane in range(2)}


def test_calls_are_told_apart() -> None:
    f, x = jax.jit(manual(mesh_programs.summing, mesh_programs.OUTS)), put(X, "x", "y")
    with tap.record() as rec:
        for _ in range(3):
            f(x)
    assert {(e.device, e.call) for e in rec.events} == {(d, call) for d in ALL for call in range(3)}
    assert rec.df().groupby(["device", "call"])["step"].apply(list).tolist() == [list(range(5))] * 24


# --- The program stays what it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
def test_donated_arguments(shards: bool) -> None:
    f = jax.jit(mesh_programs.scan, donate_argnums=0)
    bare, given = f(put(X, "x", "y")), put(X, "x", "y")
    with tap.record(shards=shards):
        result = f(given)
    assert kept(result, bare) and given.is_deleted()


@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
def test_shardings_of_inputs_and_outputs(shards: bool) -> None:
    to = lambda *spec: NamedSharding(mesh(), P(*spec))  # noqa: E731
    for given in (
        {"in_shardings": to("x"), "out_shardings": (to(None, "y"), to())},
        {"in_shardings": to("x", "y")},
        {"out_shardings": to()},
        {},
    ):
        f, x = jax.jit(mesh_programs.scan, **given), X if "in_shardings" in given else put(X, "y", "x")
        bare = f(x)
        with tap.record(shards=shards) as rec:
            result = f(x)
        assert kept(result, bare) and is_accounted(rec), given


@pytest.mark.parametrize(
    "lens", [{}, {"shards": True}, {"shards": True, "taps": [tap.on(["sin", "cos"])]}, {"last": 2}]
)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("name", ["typed", "nested", "chains", "grad of typed", "manual"])
def test_under_a_mesh(name: str, kind: Any, lens: Any) -> None:
    def typed(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) * 0.9 + t, c * 2.0), x, jnp.arange(4.0))

    def in_map(x: Any) -> Any:
        return jax.shard_map(mesh_programs.summing, in_specs=P("x", "y"), out_specs=mesh_programs.OUTS)(x)

    own = {"typed": typed, "grad of typed": jax.grad(lambda x: typed(x)[0].sum()), "manual": in_map}
    f = jax.jit(own[name] if name in own else PROGRAMS[name].run)
    spec = ("x", None) if name == "chains" else ("x", "y")
    with jax.set_mesh(mesh(kind)):
        x = put(X, *spec, kind=kind)
        bare = f(x)
        with tap.record(**lens) as rec:
            result = f(x)
        assert kept(result, bare) and is_accounted(rec) and rec.report().ok
    assert len({event.device for event in rec.events}) == (8 if lens.get("shards") or name == "manual" else 1)


@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
def test_explicit_axes_of_arguments_alone(shards: bool) -> None:
    f = jax.jit(lambda x: lax.scan(lambda c, t: (jnp.cos(c) + t, c * 2.0), x, jnp.arange(4.0)))
    x = put(X, "x", "y", kind=AxisType.Explicit)
    bare = f(x)
    with tap.record(shards=shards, select_ys=lambda leaves: leaves[0]) as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec) and len(rec.events) == (64 if shards else 8)


def test_pmap() -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c) + lax.psum(c, "i") * 0.01 + t, None), x, jnp.arange(3.0))[0]

    f = jax.pmap(run, axis_name="i")
    bare = f(X)
    with tap.record() as rec:
        result = f(X)
    assert bits(result) == bits(bare) and is_accounted(rec)
    assert counted(rec.events) == {("scan[0]", d): 3 for d in ALL}


def test_one_device_of_several() -> None:
    f, x = jax.jit(mesh_programs.scan), jax.device_put(X, jax.devices()[3])
    bare = f(x)
    with tap.record(shards=True) as rec:
        result = f(x)
    assert kept(result, bare) and counted(rec.events) == {("scan[0]", 0): 5}


def test_in_the_processes_asked_for() -> None:
    x = put(X, "x", "y")
    with tap.record(processes=[0]) as rec:
        jax.jit(mesh_programs.scan)(x)
    assert len(rec.events) == 5 and {event.process for event in rec.events} == {0}
    with tap.record(processes=1, trace=True) as rec:
        jax.jit(mesh_programs.scan)(x)
    assert len(rec.events) == 0 and rec.report().notes == ()
    for wrong in (-1, "0", [0.5]):
        with pytest.raises(ValueError, match="processes must be an integer of at least 0"):
            tap.record(processes=wrong)
    with pytest.raises(TypeError, match="shards must be True or False"):
        tap.verbose(mesh_programs.scan, shards=1)


@pytest.fixture
def without_shardy() -> Iterator[None]:
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.usefixtures("without_shardy")
@pytest.mark.parametrize("shards", [False, True], ids=["whole", "shards"])
@pytest.mark.parametrize("name", ["large", "nested", "chains", "manual"])
def test_the_partitioner_before_shardy(name: str, shards: bool) -> None:
    program, x = PROGRAMS[name], put(X, "x", "y")
    f = jax.jit(lambda x: program.run(x))
    bare = f(x)
    with tap.record(shards=shards) as rec:
        result = f(x)
    assert kept(result, bare) and is_accounted(rec)
    assert {event.device for event in rec.events} == set(ALL if shards else program.devices)
    shape = program.own if shards else program.shape
    assert {event.value[-1].shape for event in rec.events if "/" not in event.path} == {shape}


# --- Nothing waits for ever ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lens", ["whole", "shards", "calls JAX", "calls JAX on all devices"])
def test_no_deadlock(lens: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("collectives.py")), lens]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0 and done.stdout.count("done") == 4, done.stdout + done.stderr
