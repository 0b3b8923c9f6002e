"""Many events written at once: the same lines as one by one, in order, without holding anyone up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from core.flushes import flushed, random_times, story
from jax import lax

import jaxtap as tap
from jaxtap import _write_queue
from jaxtap._chunk_lines import chunk_lines
from jaxtap._jsonl import _line_of, _Otherwise

DTYPES = [
    *("bool", "int8", "uint8", "int16", "int32", "uint64", "float16", "float32", "float64", "complex64"),
    *("bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int4", "uint2"),
]
SHAPES = [(), (1,), (2, 3), (0,), (2, 0), (33,), (2, 1, 2)]


class State(NamedTuple):
    count: Any
    mu: Any


@jax.tree_util.register_pytree_with_keys_class
class Node:
    def __init__(self, a: Any) -> None:
        self.a = a

    def tree_flatten_with_keys(self) -> Any:
        return [(jax.tree_util.GetAttrKey("a"), self.a)], None

    @classmethod
    def tree_unflatten(cls, _: Any, leaves: Any) -> Node:
        return cls(*leaves)


def one_by_one(chunk: tap.TapChunk) -> list[str]:
    """The lines of a chunk as they are written event by event."""
    return [_line_of(event, _Otherwise(Path())).decode().rstrip("\n") for event in chunk.events()]


def chunk_of(values: list[Any]) -> tap.TapChunk:
    """Values of one form as a chunk: with all kinds of places."""
    n = len(values)
    leaves = [jax.tree_util.tree_leaves(value) for value in values]
    first = tap.TapChunk.of(
        tap.TapEvent('scan[0]/"%s', 0, values[0], None, "carry", (1, 2), (3,), source="a%d.py:1 (é)")
    )
    arrays = tuple(np.stack([np.asarray(row[i]) for row in leaves]) for i in range(len(leaves[0])))
    return tap.TapChunk(
        first.path, "carry", 7, first.source, 1, 2,
        steps=np.arange(n), outer=np.arange(n)[:, None], calls=np.arange(n) // 2, times=np.arange(n) / 3,
        lanes=np.arange(2 * n).reshape(n, 2), order=np.arange(n), form=first.form, arrays=arrays,
    )  # fmt: skip


def any_bits(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Random bits, NaNs with payloads and subnormals among them; now and then plain numbers."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    if seed % 2:
        return (np.arange(int(np.prod(shape))) % 2).astype(dtype).reshape(shape)
    raw = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)
    return (raw & 1 if name == "bool" else raw).view(dtype).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", DTYPES)
def test_the_lines_are_those_of_single_events(name: str, shape: tuple[int, ...]) -> None:
    chunk = chunk_of([any_bits(name, shape, seed) for seed in range(40)])
    assert chunk_lines(chunk, _Otherwise(Path())) == one_by_one(chunk)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x, {"b": x, "a": [x, 1 - x]}),
        lambda x: State(x, (x,)),
        lambda x: {"key": Node({"x": x})},
        lambda x: {3: x, 4: {"a%s": x}},
        lambda x: {"float32[]": x},
        lambda x: [x, None, ()],
    ],
)
def test_any_pytree(make: Any) -> None:
    chunk = chunk_of([make(np.float32(i) / 7) for i in range(5)])
    assert chunk_lines(chunk, _Otherwise(Path())) == one_by_one(chunk)


@pytest.mark.parametrize("seed", range(10))
def test_a_file_holds_what_a_recorder_does(seed: int, tmp_path: Path) -> None:
    lens, rows = story(seed)
    flushed(lens, rows, random_times(rows, seed))
    recorder = lens.recorder
    assert recorder is not None
    lens.digest()
    with tap.JSONLWriter(tmp_path / "a.jsonl") as writer:
        for batch in recorder._store.batches:
            writer.add(batch)  # pyright: ignore[reportArgumentType]
    assert tap.read_jsonl(writer.path) == list(recorder.events) and writer.written == len(recorder.events)


def program(v: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        key, value = c
        inner = lax.fori_loop(0, 2, lambda i, a: a * 0.5, value)
        return (jax.random.split(key)[0], inner + x), (value.astype(jnp.bfloat16), x)

    return lax.scan(body, (jax.random.key(0), v), jnp.arange(5.0))[0]


@pytest.mark.parametrize("run", [lambda: program(1.0), lambda: jax.vmap(program)(jnp.arange(3.0))])
def test_a_program_written_as_it_runs(run: Any, tmp_path: Path) -> None:
    with tap.JSONLWriter(tmp_path / "a.jsonl") as writer, tap.record(on_step=writer, on_ys=lambda event: None) as rec:
        run()
    events = [event for event in rec.events if event.kind == "carry"]
    assert tap.read_jsonl(writer.path) == events and (writer.dropped, writer.replaced) == (0, 0)
    with tap.JSONLWriter(tmp_path / "b.jsonl") as other:
        for event in events:
            other(event)
    lines = [path.read_text().splitlines()[1:-1] for path in (writer.path, other.path)]
    assert lines[0] == lines[1] and len(lines[0]) == len(events)


def test_a_slow_disk_holds_up_no_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded: the oldest events are dropped, and counted."""
    write = os.write

    def slow(descriptor: int, data: Any) -> int:
        time.sleep(0.2)
        return write(descriptor, data)

    with tap.JSONLWriter(tmp_path / "a.jsonl") as writer:
        monkeypatch.setattr(os, "write", slow)
        monkeypatch.setattr(_write_queue, "MOST_BYTES", 200_000)
        start = time.monotonic()
        chunk = chunk_of([np.zeros(1000, np.float32)] * 10)
        with pytest.warns(tap.JaxtapWarning, match="the oldest are dropped") as said:
            for _ in range(60):
                writer.write(chunk)
        assert time.monotonic() - start < 1.0 and len(said) == 1
        monkeypatch.setattr(os, "write", write)
    assert writer.dropped > 100 and writer.dropped + writer.written == 600
    assert len(tap.read_jsonl(writer.path)) == writer.written


def test_a_killed_program_has_written_what_is_a_second_old(tmp_path: Path) -> None:
    code = """
import sys, time, jax, jax.numpy as jnp, jaxtap as tap
from jax import lax

def body(c, _):
    def slow(x):
        time.sleep(0.02)
        print(int(x), time.time(), flush=True)
        return x + 1
    return jax.pure_callback(slow, jax.ShapeDtypeStruct((), jnp.int32), c), None

with tap.JSONLWriter(sys.argv[1]) as writer, tap.record(on_step=writer):
    lax.scan(body, jnp.int32(0), length=10_000)
"""
    path = tmp_path / "a.jsonl"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().split() for _ in range(120)]
        process.kill()
        killed = time.time()
    old = [int(step) for step, when in said if float(when) < killed - 1.0]
    assert len(old) > 20
    assert {event.step for event in tap.read_jsonl(path)} >= set(old)


def test_a_writer_that_is_let_go_writes_its_chunks(tmp_path: Path) -> None:
    writer = tap.JSONLWriter(tmp_path / "a.jsonl")
    writer.write(chunk_of([np.float32(i) for i in range(1000)]))
    del writer
    assert len(tap.read_jsonl(tmp_path / "a.jsonl")) == 1000


def test_an_exit_writes_chunks_that_wait(tmp_path: Path) -> None:
    code = """
import sys, jax, jax.numpy as jnp, jaxtap as tap
writer = tap.JSONLWriter(sys.argv[1])
g = tap.verbose(lambda x: jax.lax.scan(lambda c, x: (c + x, None), x, jnp.arange(3000.0))[0], on_step=writer)
jax.jit(g)(1.0)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.jsonl")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [event.step for event in tap.read_jsonl(tmp_path / "a.jsonl")] == list(range(3000))
    assert '"ended"' in (tmp_path / "a.jsonl").read_text().splitlines()[-1]
