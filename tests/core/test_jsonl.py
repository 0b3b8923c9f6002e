"""Events in a file: every value back bit for bit, every whole line kept, and no failure that reaches the program."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import gc
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtap import FlightRecorder, JaxtapWarning, JSONLWriter, TapEvent, read_jsonl

NUMPY_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
SMALL_DTYPES = [
    *("bfloat16", "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
    *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int2", "int4", "uint2", "uint4"),
]
DTYPES = {name: np.dtype(name) for name in NUMPY_DTYPES} | {n: np.dtype(getattr(ml_dtypes, n)) for n in SMALL_DTYPES}
SHAPES = [(), (1,), (2, 3), (0,), (3, 0), (0, 3), (2, 1, 2), (7, 9)]
IMPLEMENTATIONS = ["threefry2x32", "rbg", "unsafe_rbg"]


class State(NamedTuple):
    count: Any
    mu: Any


class Empty(NamedTuple):
    pass


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    params: Any
    rate: Any


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def any_bits(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of random bits: NaNs with payloads, subnormals, padding that is not zero."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    if dtype == np.bool_:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def bits(value: Any) -> Any:
    """What has to be the same after a round trip: types, dtypes, shapes, bits, and the order of dicts."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        return ("tuple" if fields is None else (type(value).__name__, fields), [bits(item) for item in value])
    if isinstance(value, list):
        return ("list", [bits(item) for item in value])
    if isinstance(value, dict):
        return ("dict", [(bits(key), bits(item)) for key, item in value.items()])
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return ("key", str(jax.random.key_impl(value)), bits(np.asarray(jax.random.key_data(value))))
    if isinstance(value, (np.ndarray, jax.Array)):
        return ("array", value.dtype, value.shape, np.asarray(value).tobytes())
    if isinstance(value, (np.generic, float, complex)):
        return (type(value), np.asarray(value).tobytes())
    return (type(value), value)


def write(path: Path, *values: Any) -> list[str]:
    """The lines of a file with one event for each value, between its first and its last, all ASCII and strict JSON."""
    with JSONLWriter(path) as writer:
        for step, value in enumerate(values):
            writer(TapEvent("scan[0]", step, value))
    assert (writer.written, writer.dropped) == (len(values), 0)
    lines = path.read_text(encoding="ascii").splitlines()
    for line in lines:
        json.loads(line, parse_constant=pytest.fail)
    first, *lines, last = lines
    assert (list(json.loads(first)), list(json.loads(last))) == (["begun", "format"], ["ended"])
    return lines


def round_trip(path: Path, *values: Any) -> list[Any]:
    write(path, *values)
    return [event.value for event in read_jsonl(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


# Values


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(path: Path, name: str) -> None:
    arrays = [any_bits(DTYPES[name], shape, seed) for shape in SHAPES for seed in range(4)]
    ones = [np.ones(shape, DTYPES[name]) for shape in SHAPES]
    scalars = [array[()] for array in (arrays + ones) if array.shape == ()]
    values = arrays + ones + scalars
    assert list(map(bits, round_trip(path, *values))) == list(map(bits, values))


@pytest.mark.parametrize("name", [name for name in DTYPES if "64" not in name and name != "complex128"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)], ids=str)
def test_jax_arrays_come_back_as_numpy_arrays(path: Path, name: str, shape: tuple[int, ...]) -> None:
    value = jnp.ones(shape, DTYPES[name])
    (back,) = round_trip(path, value)
    assert isinstance(back, np.ndarray)
    assert bits(back) == bits(np.asarray(value))


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.itemsize == 1])
def test_every_byte_of_a_small_dtype(path: Path, name: str) -> None:
    values = [np.uint8(byte).view(DTYPES[name]) for byte in range(2 if name == "bool" else 256)]
    assert list(map(bits, round_trip(path, *values))) == list(map(bits, values))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)], ids=str)
def test_keys_come_back_as_keys(path: Path, implementation: str, shape: tuple[int, ...]) -> None:
    key = jax.random.split(jax.random.key(7, impl=implementation), shape) if shape else jax.random.key(1)
    (back,) = round_trip(path, {"rng": (key,)})
    assert bits(back) == bits({"rng": (key,)})


VALUES = {
    "none": None,
    "bools": (True, False, np.True_),
    "ints": (0, -1, 2**63, 2**64 - 1, -(2**200), np.uint64(2**64 - 1)),
    "floats": (0.0, -0.0, 0.1, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"), float("-nan")),
    "nan payloads": tuple((any_bits(np.dtype("uint64"), (4,)) | 0x7FF0 << 48).view("float64").tolist()),
    "complexes": (1 + 2j, complex(float("nan"), -0.0), complex(0.0, float("-inf"))),
    "strings": ("", "nan", "base64:AAAA", "café ☕\U0001d50d", '"\\\n\r\u2028\0', "\ud800"),
    "tuples": ((), ((),), (1, (2, [3, (4,)])), [], [[]], [()]),
    "dicts": ({}, {"b": 1, "a": {"c": None}}, {"": 1}, {1: "a", "1": "b", (2, (None, True)): "c"}, {np.int32(3): 4}),
    "dicts like tags": ({"float32[]": 1.5}, {"list()": 1}, {"x[": 0}, {"key<a>": 0, "b": 1}, {"']": 2}, {"dict()": {}}),
    "namedtuples": (State(1, State((2,), None)), Empty(), [State({"a": 1}, ())]),
    "odd namedtuples": collections.namedtuple("odd", ["class", "x"], rename=True)(1, 2),
    "mixed": {"loss": np.float32(0.5), "state": State(np.int32(1), [np.zeros((2, 0), "float32"), None])},
    "large": np.arange(1000, dtype="float32").reshape(10, 100),
    "transposed": np.arange(6, dtype="int16").reshape(2, 3).T,
    "float0": np.zeros((2, 3), jax.dtypes.float0),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_every_pytree_comes_back(path: Path, value: Any) -> None:
    (back,) = round_trip(path, value)
    assert bits(back) == bits(value)


def test_arrays_read_can_be_written_to(path: Path) -> None:
    for array in round_trip(path, np.ones(3, "float32"), np.ones(1000, "float32")):
        array[0] = 2


def test_another_byte_order_keeps_the_numbers(path: Path) -> None:
    (back,) = round_trip(path, np.array([1.5, -2.0], ">f4"))
    assert bits(back) == bits(np.array([1.5, -2.0], "float32"))


def trees() -> st.SearchStrategy[Any]:
    shapes = st.sampled_from([(), (), (1,), (3,), (2, 2), (0,), (11, 3)])
    arrays = st.builds(any_bits, st.sampled_from([*DTYPES.values()]), shapes, st.integers(0, 2**32))
    scalars = arrays.filter(lambda array: array.size > 0).map(lambda array: array.ravel()[0])
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text()
    keys = st.text(max_size=3) | st.integers() | st.sampled_from(["float32[]", "list()", "a>", (1, "a"), None])

    def nest(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(children, max_size=3)
        states = st.builds(State, children, children)
        return several | several.map(tuple) | st.dictionaries(keys, children, max_size=3) | states

    return st.recursive(arrays | scalars | plain, nest, max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(value=trees())
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    (back,) = round_trip(tmp_path_factory.getbasetemp() / "tree.jsonl", value)
    assert bits(back) == bits(value)


def test_subnormals_seen_inside_a_callback(path: Path) -> None:
    """XLA runs callbacks with subnormals flushed to zero, in Python's arithmetic too."""
    value = np.array([1, 2**22 + 1], "int32").view("float32")
    with JSONLWriter(path) as writer:
        jax.jit(lambda x: jax.debug.callback(lambda x: writer(TapEvent("", -1, x)), x))(value)
        jax.effects_barrier()
    assert bits(read_jsonl(path)[0].value) == bits(value)


# Values without a form of their own


def test_a_registered_pytree_comes_back_as_its_leaves_by_path(path: Path) -> None:
    value = Registered({"w": np.ones(2, "float32"), "b": (np.int8(1),)}, np.float32(0.5))
    leaves = {".params['b'][0]": np.int8(1), ".params['w']": np.ones(2, "float32"), ".rate": np.float32(0.5)}
    (back,) = round_trip(path, (value,))
    assert bits(back) == bits((leaves,))


def contains_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


NO_FORM = {
    "object": (object(), "<object object at"),
    "no repr": (Hostile(), "<Hostile object>"),
    "dtype": (np.array(["a"]), "array(['a']"),
    "object array": (np.array([None]), "array([None]"),
    "long repr": (b"x" * 1000, "b'xxx"),
    "long int": (10**5000, "<int object>"),
    "endless": (contains_itself(), "[[...]]"),
}


@pytest.mark.parametrize(("value", "text"), NO_FORM.values(), ids=NO_FORM)
def test_a_value_without_a_form_is_written_as_its_repr_with_one_warning(path: Path, value: Any, text: str) -> None:
    with JSONLWriter(path) as writer, pytest.warns(JaxtapWarning, match="written as its repr") as caught:
        for step in range(3):
            writer(TapEvent("scan[0]", step, value))
    assert len(caught) == 1
    assert (writer.written, writer.dropped, writer.replaced) == (3, 0, 3)
    assert all(event.value.startswith(text) and len(event.value) < 300 for event in read_jsonl(path))


def test_the_rest_of_the_tree_is_kept(path: Path) -> None:
    deleted = jnp.ones(2)
    deleted.delete()
    value = {"good": np.float32(1.5), "bad": [deleted, b"bytes"], frozenset([1]): 2}
    with JSONLWriter(path) as writer, pytest.warns(JaxtapWarning):
        writer(TapEvent("scan[0]", 0, value))
    back = read_jsonl(path)[0].value
    assert writer.replaced == 3
    assert bits(back["good"]) == bits(np.float32(1.5))
    assert back["bad"][1] == "b'bytes'"
    assert back["frozenset({1})"] == 2


def test_what_is_no_event_is_dropped_with_one_warning(path: Path) -> None:
    writer: Any = JSONLWriter(path)
    with writer, pytest.warns(JaxtapWarning, match="Pass it TapEvents") as caught:
        writer("event")
        writer(TapEvent("scan[0]", 0, None, time=float("nan")))
        writer(TapEvent("scan[0]", 1, 2))
    assert len(caught) == 1
    assert (writer.written, writer.dropped) == (1, 2)
    assert [event.value for event in read_jsonl(path)] == [2]


# Lines


LINES = {
    '{"float32[]": 0.1}': np.array(0.1, "float32"),
    '{"float32()": -0.0}': np.float32(-0.0),
    '{"float32[]": "-nan"}': np.array(float("-nan"), "float32"),
    '{"bfloat16[3]": [1.0, "inf", "nan"]}': np.array([1, np.inf, np.nan], ml_dtypes.bfloat16),
    '{"int4[2,2]": [[-8, 7], [0, 1]]}': np.array([[-8, 7], [0, 1]], ml_dtypes.int4),
    '{"bool[]": true}': np.array(True),
    '{"complex64[1]": [[0.5, "nan"]]}': np.array([complex(0.5, np.nan)], "complex64"),
    '{"float32[0]": []}': np.zeros(0, "float32"),
    '{"float32[]": "base64:AQCAfw=="}': np.array(0x7F800001, "uint32").view("float32"),
    '[{"int32[]": 1}, {"list()": [2, "a", null]}]': (np.array(1, "int32"), [2, "a", None]),
    '{"loss": 0.5, "done": false}': {"loss": 0.5, "done": False},
    '{"dict()": [[1, 2]]}': {1: 2},
    '{"namedtuple(State)": {"count": 1, "mu": 2}}': State(1, 2),
    '{"key<threefry2x32>": {"uint32[2]": [0, 5]}}': jax.random.key(5, impl="threefry2x32"),
}


@pytest.mark.parametrize(("text", "value"), LINES.items(), ids=LINES)
def test_lines_read_well(path: Path, text: str, value: Any) -> None:
    (line,) = write(path, value)
    before = '{"path": "scan[0]", "step": 0, "total": null, "kind": "carry", "value": '
    after = ', "lane": [], "outer": [], "call": 0, "time": 0.0, "source": "", "device": 0, "process": 0}'
    assert line == before + text + after


EVENT = TapEvent("scan[0]/é", 3, 1, 10, "output", (1, 2), (0, 4), 5, 12.25, "f.py:1 (f)", 6, 7)


def test_every_field_comes_back(path: Path) -> None:
    assert all(getattr(EVENT, field.name) != field.default for field in dataclasses.fields(EVENT))
    counted = dataclasses.replace(EVENT, step=np.int32(3), lane=(np.int64(1), 2))  # pyright: ignore[reportArgumentType]
    with JSONLWriter(str(path)) as writer:
        writer(EVENT)
        writer(counted)
    assert read_jsonl(str(path)) == [EVENT, EVENT]
    assert writer.path == path


# What stands in a line of jax-tap 0.3.1 as "value_kind" and "value", and what its own reader makes of it; save for the
# last two rows, where it leaves the lists inside the inner dict as they are.
JAXTAP = [
    ("scalar", "1.5", 1.5),
    ("scalar", "NaN", float("nan")),
    ("scalar", "-Infinity", float("-inf")),
    ("scalar", "3", 3),
    ("scalar", "true", True),
    ("scalar", "null", None),
    ("scalar", '"x"', "x"),
    ("scalar", "[1.0, 2.0]", np.array([1.0, 2.0])),
    ("scalar", "[[1, 2], [3, 4]]", np.array([[1, 2], [3, 4]])),
    ("tuple", "[]", ()),
    ("tuple", "[1.0, 2.0]", (1.0, 2.0)),
    ("tuple", "[[1.0, NaN], 4]", (np.array([1.0, float("nan")]), 4)),
    ("tuple", '[{"a": 1.0}, null, "x"]', ({"a": 1.0}, None, "x")),
    ("dict", "{}", {}),
    ("dict", '{"a": 1.0, "b": [true, false]}', {"a": 1.0, "b": np.array([True, False])}),
    ("dict", '{"float32[]": {"b": [1]}}', {"float32[]": {"b": np.array([1])}}),
    ("dict", '{"a": {"b": [1, [2, 3]]}}', {"a": {"b": (1, np.array([2, 3]))}}),
]


@pytest.mark.parametrize(("value_kind", "text", "value"), JAXTAP)
def test_lines_of_jaxtap_0_3_are_read(path: Path, value_kind: str, text: str, value: Any) -> None:
    line = f'{{"path": "scan[0]", "step": 2, "value_kind": "{value_kind}", "value": {text}'
    path.write_text(f'{line}, "kind": "output"}}\n{line}}}\n')
    events = read_jsonl(path)
    assert [(e.path, e.step, e.total, e.kind) for e in events] == [("scan[0]", 2, None, k) for k in ("output", "carry")]
    assert [bits(event.value) for event in events] == [bits(value)] * 2


# Broken files


def test_a_file_cut_at_any_byte_of_its_last_line(path: Path) -> None:
    write(path, np.float32(0.5), {"é": [1, "a"]}, "café")
    # As another writer might spell it, with a character of several bytes.
    lines = path.read_bytes().replace(b"\\u00e9", "é".encode()).splitlines(keepends=True)
    whole = b"".join(lines[:-1])
    start = len(whole) - len(lines[-2])
    values = [event.value for event in read_jsonl(path)]
    for end in range(start, len(whole) + 1):
        path.write_bytes(whole[:end])
        kept = 2 if end < len(whole) - 1 else 3
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [event.value for event in read_jsonl(path)] == values[:kept]
        expected = [] if end == start or kept == 3 else ["skipped 1 of 3 lines"]
        assert [str(w.message).split(": ")[2].split(",")[0] for w in caught] == expected


BROKEN = [
    b'{"path": "scan[0]", "st',
    b"\xff\xfe\xc3",
    b"\0\0\0\0",
    b"[]",
    b'"text"',
    b"{}",
    b'{"path": "scan[0]", "step": 0}',
    b'{"step": 0, "value": 1}',
    b'{"path": "scan[0]", "step": 0, "value": {"float128[]": 1}}',
    b'{"path": "scan[0]", "step": 0, "value": {"finfo[]": 1}}',
    b'{"path": "scan[0]", "step": 0, "value": {"float32[2]": [1.0]}}',
    b'{"path": "scan[0]", "step": 0, "value": {"float32[2]": "base64:AAA"}}',
    b'{"path": "scan[0]", "step": 0, "value": {"later(x)": 1}}',
    b'{"path": "scan[0]", "step": 0, "value": ' + b"[" * 100_000,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken[-30:].decode("latin1"))
def test_whole_lines_around_broken_ones_are_kept(path: Path, broken: bytes) -> None:
    first, second = (line.encode() for line in write(path, 1, 2))
    path.write_bytes(b"\n".join([broken, first, broken, b"", second + b"\r", broken]))
    with pytest.warns(JaxtapWarning, match=r"events\.jsonl: skipped 3 of 5 lines.*first: line 1, ") as caught:
        assert [event.value for event in read_jsonl(path)] == [1, 2]
    assert len(caught) == 1
    assert caught[0].filename == __file__


# Several files


def files(folder: Path, ended: bool = True) -> str:
    """Three files of processes whose events come by turns; the last is one of before files were begun and ended."""

    def keep(process: int, lines: slice) -> None:
        path = folder / f"run-{process}.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[lines]))

    for process in range(3):
        with JSONLWriter(folder / f"run-{process}.jsonl") as writer:
            for step in range(2):
                writer(TapEvent("scan[0]", step, step, time=float(3 * step + process), process=process))
    keep(2, slice(1, -1))
    if not ended:
        keep(1, slice(-1))
    return f"{folder}/run-*.jsonl"


def test_several_files_are_merged_by_time(tmp_path: Path) -> None:
    paths = files(tmp_path)
    events = read_jsonl(paths)
    assert [(event.step, event.process) for event in events] == [(s, p) for s in range(2) for p in range(3)]
    assert read_jsonl(sorted(tmp_path.iterdir())) == events
    assert read_jsonl([paths]) == events
    recorder = FlightRecorder()
    for event in events:
        recorder(event)
    assert recorder.df()["process"].tolist() == [0, 1, 2, 0, 1, 2] and "device" not in recorder.df()


def test_files_that_ended_early_are_named(tmp_path: Path) -> None:
    paths = files(tmp_path, ended=False)
    early = rf"1 of 3 files ended early: {tmp_path}/run-1\.jsonl \(process 1, last event \d\d:\d\d:\d\d\)"
    with pytest.warns(JaxtapWarning, match=early) as caught:
        assert len(read_jsonl(paths)) == 6
    assert len(caught) == 1 and caught[0].filename == __file__
    assert len(read_jsonl(tmp_path / "run-1.jsonl")) == 2


def test_no_file_that_fits(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no events to read"):
        read_jsonl(tmp_path / "run-*.jsonl")
    (tmp_path / "run-*.jsonl").touch()
    assert read_jsonl(tmp_path / "run-*.jsonl") == []


def test_the_process_in_the_name(tmp_path: Path) -> None:
    with JSONLWriter(tmp_path / "run-{process}.jsonl") as writer:
        writer(TapEvent("scan[0]", 0, 0))
    assert writer.path == tmp_path / "run-0.jsonl" and len(read_jsonl(writer.path)) == 1


def test_an_empty_file_holds_no_events(path: Path) -> None:
    path.touch()
    assert read_jsonl(path) == []


def test_a_missing_file_or_folder_says_what_to_do(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the path that JSONLWriter was given.*events\.jsonl"):
        read_jsonl(path)
    with pytest.raises(FileNotFoundError, match=r"create the folder .* first.*events\.jsonl"):
        JSONLWriter(path.parent / "missing" / "events.jsonl")


def test_an_existing_file_is_overwritten(path: Path) -> None:
    write(path, 1, 2, 3)
    assert round_trip(path, 4) == [4]


# When events reach the file


def wait_for(condition: Any, seconds: float = 1.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_the_end_of_a_burst_is_written_within_a_second(path: Path) -> None:
    with JSONLWriter(path) as writer:
        for burst in (1, 2, 3):
            for step in range(10):
                writer(TapEvent("scan[0]", step, step))
            assert wait_for(lambda burst=burst: writer.written == 10 * burst)
            assert len(read_jsonl(path)) == 10 * burst


def test_a_burst_takes_few_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write_now = os.write

    def counted(descriptor: int, data: Any) -> int:
        sizes.append(len(data))
        return write_now(descriptor, data)

    monkeypatch.setattr(os, "write", counted)
    start = time.monotonic()
    with JSONLWriter(path) as writer:
        for step in range(5000):
            writer(TapEvent("scan[0]", step, step))
    spans = (time.monotonic() - start) / 0.2
    assert len(sizes) <= 3 + 2 * spans + sum(sizes) / 65536
    assert [event.step for event in read_jsonl(path)] == list(range(5000))


def test_an_event_after_a_pause_is_written_at_once(path: Path) -> None:
    with JSONLWriter(path) as writer:
        for step in range(2):
            writer(TapEvent("scan[0]", step, step))
            assert writer.written == step + 1
            time.sleep(0.25)


def test_without_a_thread_every_event_is_written_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with JSONLWriter(path) as writer:
        for step in range(5):
            writer(TapEvent("scan[0]", step, step))
            assert writer.written == step + 1


def test_several_threads_write_whole_lines(path: Path) -> None:
    def work(lane: int) -> None:
        for step in range(400):
            writer(TapEvent("scan[0]", step, "x" * step, lane=(lane,)))

    with JSONLWriter(path) as writer:
        threads = [threading.Thread(target=work, args=(lane,)) for lane in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read_jsonl(path)
    assert writer.written == len(events) == 2400
    for lane in range(6):
        assert [event.step for event in events if event.lane == (lane,)] == list(range(400))


def test_close_is_final_and_a_late_event_is_counted(path: Path) -> None:
    writer = JSONLWriter(path)
    writer(TapEvent("scan[0]", 0, 0))
    writer.close()
    writer.close()
    with pytest.warns(JaxtapWarning, match=r"it is closed.*jax\.effects_barrier\(\)") as caught:
        for _ in range(3):
            writer(TapEvent("scan[0]", 1, 1))
    assert len(caught) == 1
    assert (writer.written, writer.dropped) == (1, 3)
    assert [event.value for event in read_jsonl(path)] == [0]


def test_a_writer_that_is_let_go_writes_its_events_and_ends_its_thread(path: Path) -> None:
    writer = JSONLWriter(path)
    for step in range(10):
        writer(TapEvent("scan[0]", step, step))
    names = [f"jaxtap {path.name}"]
    assert [t.name for t in threading.enumerate() if t.name in names] == names
    del writer
    gc.collect()
    assert len(read_jsonl(path)) == 10
    assert wait_for(lambda: not any(t.name in names for t in threading.enumerate()))


# Disks that fail


def test_a_full_disk_gives_one_warning_and_a_count() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    warned = pytest.warns(JaxtapWarning, match=r"No space left on device.*JSONLWriter\.dropped")
    with warned as caught, JSONLWriter("/dev/full") as writer:
        for step in range(5):
            writer(TapEvent("scan[0]", step, "x" * 60_000))
    assert len(caught) == 1
    assert (writer.written, writer.dropped) == (0, 5)


def test_a_line_torn_by_a_disk_that_recovers_spoils_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_now = os.write
    calls = iter(["part", "fail", "fail"])

    def flaky(descriptor: int, data: Any) -> int:
        match next(calls, "whole"):
            case "part":
                return write_now(descriptor, bytes(data[: len(data) - 100]))
            case "fail":
                raise OSError(errno.ENOSPC, "No space left on device")
            case _:
                return write_now(descriptor, data)

    with JSONLWriter(path) as writer:
        writer(TapEvent("scan[0]", 0, 0))
        for step in range(1, 4):  # in one write, which tears the last
            writer(TapEvent("scan[0]", step, step))
        monkeypatch.setattr(os, "write", flaky)
        with pytest.warns(JaxtapWarning, match="No space left"):
            writer(TapEvent("scan[0]", 4, "x" * 100_000))
        writer(TapEvent("scan[0]", 5, "x" * 100_000))
        writer(TapEvent("scan[0]", 6, "x" * 100_000))
    assert (writer.written, writer.dropped) == (5, 2)
    with pytest.warns(JaxtapWarning, match="skipped 1 of 6 lines"):
        assert [event.step for event in read_jsonl(path)] == [0, 1, 2, 3, 6]


def open_descriptor(path: Path) -> int:
    for descriptor in range(3, 4096):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
    raise AssertionError(f"{path} is not open")


def test_a_descriptor_that_someone_closed(path: Path) -> None:
    writer = JSONLWriter(path)
    os.close(open_descriptor(path))
    with pytest.warns(JaxtapWarning, match="Bad file descriptor"):
        writer(TapEvent("scan[0]", 0, 0))
    other = path.with_name("other")
    with other.open("wb"):
        writer(TapEvent("scan[0]", 1, "x" * 100_000))
        writer.close()
    assert other.read_bytes() == b""
    assert (writer.written, writer.dropped) == (0, 2)


# Whole processes


def python(code: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, *options, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_process_loses_nothing_that_is_a_second_old(path: Path) -> None:
    code = """
import sys, time
from jaxtap import JSONLWriter, TapEvent
writer = JSONLWriter(sys.argv[1])
for step in range(20):
    writer(TapEvent("scan[0]", step, step))
    time.sleep(0.03)
for step in range(20, 50):
    writer(TapEvent("scan[0]", step, step))
print("written", flush=True)
time.sleep(60)
"""
    with python(code, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        time.sleep(1.2)
        process.kill()
    assert [event.value for event in read_jsonl(path)] == list(range(50))


def test_an_exit_writes_what_is_pending_and_what_comes_still_later(path: Path) -> None:
    code = """
import atexit, sys
atexit.register(lambda: [writer(TapEvent("scan[0]", step, step)) for step in range(50, 60)])
from jaxtap import JSONLWriter, TapEvent
writer = JSONLWriter(sys.argv[1])
for step in range(50):
    writer(TapEvent("scan[0]", step, step))
"""
    with python(code, path, options=("-X", "dev", "-W", "error")) as process:
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert [event.step for event in read_jsonl(path)] == list(range(60))


def test_no_warning_that_is_an_error_reaches_the_program(path: Path) -> None:
    code = """
import sys, warnings
import numpy as np
from jaxtap import JSONLWriter, TapEvent, read_jsonl
warnings.simplefilter("error")
writer = JSONLWriter("/dev/full")
for step in range(3):
    writer(TapEvent("scan[0]", step, "x" * 100_000))
writer.close()
late = JSONLWriter(sys.argv[1])
late(TapEvent("scan[0]", 0, object()))
late(TapEvent("scan[0]", 1, np.array([3.4e38, 1e-45, np.nan], "float32")))
late.close()
late(TapEvent("scan[0]", 2, 2))
with open(sys.argv[1], "a") as file:
    file.write('{"path')
print(writer.dropped, late.dropped, late.replaced, len(read_jsonl(sys.argv[1])))
"""
    with python(code, path) as process:
        output, errors = process.communicate()
    assert (process.returncode, output) == (0, "3 1 1 2\n"), errors
    lines = errors.splitlines()
    assert [line.startswith("[tap] warning: jaxtap: ") for line in lines] == [True] * 4
    for line, words in zip(lines, ["No space left", "as its repr", "it is closed", "skipped 1 of 3"], strict=True):
        assert words in line
