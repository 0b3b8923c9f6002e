"""Files that no jaxtap has written: a clear error or a counted skip, in little time and memory, and nothing is run."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time
import tracemalloc
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxtap import JaxtapWarning, JSONLWriter, TapEvent, read_jsonl

GOOD = b'{"path": "scan[0]", "step": 0, "value": 1}'
SECONDS = 2.0
# Of memory, beside a few times the file itself.
BYTES = 64 << 20


def line(value: str = "1", **fields: str) -> bytes:
    """A line with some JSON for its value and fields."""
    record = {"path": '"scan[0]"', "step": "0", "value": value} | fields
    return ("{" + ", ".join(f'"{key}": {text}' for key, text in record.items()) + "}").encode("utf-8", "surrogatepass")


def nested(start: str, end: str, depth: int) -> str:
    return start * depth + "1" + end * depth


# What is left out, and counted.
SKIPPED = {
    # No lines of JSON objects.
    "binary": bytes(range(256)).replace(b"\n", b""),
    "zeros": b"\0" * 100_000,
    "cut": GOOD[:-3],
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "two in one line": GOOD + GOOD,
    "half of one and all of another": GOOD[:20] + GOOD,
    "no object": b'["path", "step", "value"]',
    "an array nested deeply": line(nested("[", "]", 100_000)),
    "an object nested deeply": line(nested('{"a": ', "}", 100_000)),
    "tags nested deeply": line(nested('{"list()": [', "]}", 5000)),
    "lists of jax-tap nested deeply": line(nested("[1, [", "]]", 2000), value_kind='"scalar"'),
    "never closed": line("[" * 1_000_000),
    # Numbers.
    "a number of a million digits": line("1" * 1_000_000),
    "a step of a million digits": line(step="1" * 1_000_000),
    "a size of thousands of digits": line('{"float32[%s]": []}' % ("9" * 5000)),
    # Fields of wrong types.
    "a path that is a number": line(path="1"),
    "a path that is a list": line(path='["scan[0]"]'),
    "a step that is text": line(step='"0"'),
    "a step that is a fraction": line(step="0.5"),
    "a step that is NaN": line(step="NaN"),
    "a step that is true": line(step="true"),
    "a total that is text": line(total='"many"'),
    "a kind that is a list": line(kind="[]"),
    "a lane that is a number": line(lane="3"),
    "a lane that is text": line(lane='"abc"'),
    "a lane of lists": line(lane="[[1]]"),
    "a time that is text": line(time='"now"'),
    "a time that is a list": line(time="[]"),
    "a time that is NaN": line(time="NaN"),
    "a time after all dates": line(time="1e308"),
    "a time of many digits": line(time="9" * 400),
    "a process that is text": line(process='"0"'),
    "a source that is a number": line(source="5"),
    # Tags that name nothing.
    "a tag without a name": line('{"]": 1}'),
    "a tag of a million brackets": line('{"%s]": 1}' % ("[" * 1_000_000)),
    "a tag of a million letters": line('{"%s]": 1}' % ("a" * 1_000_000)),
    "a key of no implementation": line('{"key<os.system>": {"uint32[2]": [0, 1]}}'),
    "a key without data": line('{"key<threefry2x32>": "x"}'),
    "a key of another size": line('{"key<threefry2x32>": {"uint32[3]": [0, 1, 2]}}'),
    "a namedtuple of a list": line('{"namedtuple(State)": [1, 2]}'),
    "a dict with a list for a key": line('{"dict()": [[{"list()": [1]}, 2]]}'),
    "a dict with an array for a key": line('{"dict()": [[{"float32[1]": [1.0]}, 2]]}'),
    "a dict whose keys collide": line(
        '{"dict()": [' + ", ".join(f"[{i * sys.hash_info.modulus}, 1]" for i in range(50_000)) + "]}"
    ),
    # Arrays.
    **{
        f"an array of dtype {name}": line(f'{{"{name}[1]": "base64:AAAAAAAAAAA="}}')
        for name in ("object", "object_", "O", "str_", "bytes_", "void", "datetime64", "generic", "V8", "f4", "finfo")
    },
    "a scalar of dtype object": line('{"object()": 1}'),
    "a shape that needs terabytes": line('{"float32[1000000,1000000,1000000]": []}'),
    "a shape that needs terabytes, and bytes": line('{"float32[1000000,1000000]": "base64:AAAA"}'),
    "a shape that needs terabytes of nothing": line('{"float0[1000000,1000000]": "base64:AAAA"}'),
    "a shape larger than any address": line('{"float32[0,1000000,1000000,1000000000000000000]": []}'),
    "a shape of too many axes": line('{"float32[' + "1," * 100_000 + '1]": [1.0]}'),
    "a negative size": line('{"float32[-1]": [1.0, 2.0]}'),
    "a size in digits of another script": line('{"float32[\u0663]": [1.0, 2.0, 3.0]}'),
    "no base64": line('{"float32[1]": "base64:!!!!"}'),
    "too few bytes": line('{"float32[2]": "base64:AAAAAA=="}'),
    "too many bytes": line('{"float32[1]": "base64:AAAAAAAAAAA="}'),
    "a bool that is 2": line('{"bool[1]": "base64:Ag=="}'),
    "too few items": line('{"float32[2]": [1.0]}'),
    "an item out of bounds": line('{"int8[1]": [300]}'),
    "an item of many digits": line('{"int64[1]": [%s]}' % ("1" * 4000)),
    "ints that are text": line('{"int32[1]": ["5"]}'),
    "ints that are fractions": line('{"int32[1]": [1.5]}'),
    "bools that are text": line('{"bool[1]": ["x"]}'),
    "floats that are text": line('{"float32[1]": ["%s"]}' % ("1" * 1_000_000)),
    "floats that are objects": line('{"float32[1]": [{"a": 1}]}'),
}

# What is read, and means no more than it says.
READ: dict[str, tuple[bytes, Any]] = {
    "tokens that strict JSON does not have": (line("[NaN, Infinity, -Infinity]"), (np.nan, np.inf, -np.inf)),
    "a key twice, of which the last counts": (GOOD[:-1] + b', "value": 2}', 2),
    "a field of a later jaxtap": (line("3", later="[1, 2]"), 3),
    "markup": (line('"<script>a()</script>"', path='"<img src=x onerror=a()>[red]"'), "<script>a()</script>"),
    "code": (line('"__import__(\'os\').system(\'false\')"'), "__import__('os').system('false')"),
    "half a character": (line('"\\ud800"', path='"\\ud800"'), "\ud800"),
    "a namedtuple with code for a name": (line('{"namedtuple(__import__(\'os\').system)": {"x": 1}}'), (1,)),
    "a namedtuple with code for fields": (line('{"namedtuple(A)": {"x; import os": 1, "__class__": 2}}'), (1, 2)),
    "a number past all floats": (line("1e99999"), np.inf),
    "many items of nothing": (line('{"float0[1000000,1000000]": "base64:"}'), None),
    "no items of a large shape": (line('{"float32[0,1000000,1000000]": "base64:"}'), None),
}  # fmt: skip


FORBIDDEN = (
    "import",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "subprocess.Popen",
    "socket.",
)
watching: list[list[str]] = []


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and (event.startswith(FORBIDDEN) or (event == "open" and "w" in str(arguments[1]))):
        watching[-1].append(f"{event} {arguments}")


# It cannot be taken away again; outside of `harmless` it hears nothing.
sys.addaudithook(hear)


@contextlib.contextmanager
def harmless(size: int) -> Generator[None]:
    """What happens inside takes little time and memory, and runs and opens nothing."""
    watching.append([])
    tracemalloc.start()
    start = time.process_time()
    try:
        yield
        assert time.process_time() - start < SECONDS
        assert tracemalloc.get_traced_memory()[1] < BYTES + 40 * size
        assert watching[-1] == []
    finally:
        tracemalloc.stop()
        watching.pop()


def skipped_lines(path: Path) -> tuple[list[TapEvent], str]:
    """The events of a file, and the one warning there is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with harmless(path.stat().st_size):
            events = read_jsonl(path)
    assert {w.category for w in caught} <= {JaxtapWarning} and len(caught) <= 1
    return events, "".join(str(w.message) for w in caught)


# A key is read by JAX, and for the first one JAX imports its own modules.
read_first = line('{"key<threefry2x32>": {"uint32[2]": [0, 1]}}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(read_first)
    assert len(read_jsonl(path)) == 1
    return path


@pytest.mark.parametrize("name", SKIPPED)
def test_what_cannot_be_read_is_counted(path: Path, name: str) -> None:
    path.write_bytes(b"\n".join([GOOD, SKIPPED[name], GOOD]))
    events, said = skipped_lines(path)
    assert [event.value for event in events] == [1, 1]
    assert "skipped 1 of 3 lines" in said and "first: line 2, " in said and len(said) < 1000
    with pytest.warns(JaxtapWarning, match="skipped 1 of 3"):
        assert len(read_jsonl([path, path])) == 4


@pytest.mark.parametrize("name", READ)
def test_what_can_be_read_is_only_data(path: Path, name: str) -> None:
    text, value = READ[name]
    path.write_bytes(text)
    (event,), said = skipped_lines(path)
    assert said == "" and isinstance(event.path, str)
    if value is None:
        assert event.value.nbytes == 0
    else:
        np.testing.assert_equal(event.value, value)


def test_a_file_of_a_newer_format_is_refused(path: Path) -> None:
    path.write_bytes(b'{"begun": 1.0, "format": 2}\n' + GOOD)
    with pytest.raises(
        ValueError, match=r"events\.jsonl: written by a newer jaxtap, in format 2, .*up to 1: pip install"
    ):
        read_jsonl(path)


@pytest.mark.parametrize("named", ["1", "0", '"2"', "null", "2.5", "[]", "true"])
def test_a_format_that_is_no_newer_one_is_none(path: Path, named: str) -> None:
    path.write_bytes(b'{"begun": 1.0, "format": %s}\n' % named.encode() + GOOD)
    assert len(read_jsonl(path)) == 1


def test_files_of_two_processes_in_one(path: Path) -> None:
    whole = []
    for process in range(2):
        with JSONLWriter(path) as writer:
            writer(TapEvent("scan[0]", 0, 0, process=process))
        whole.append(path.read_bytes())
    torn = whole[0][: whole[0].index(b'{"ended"') + 8]
    for text, kept in ((b"".join(whole), [0, 1]), (torn + whole[1], [0, 1])):
        path.write_bytes(text)
        events, _ = skipped_lines(path)
        assert [event.process for event in events] == kept


def test_a_line_longer_than_can_be_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtap._read_jsonl.LONGEST_LINE", 1000)
    path.write_bytes(b"\n".join([GOOD, b"x" * 5_000_000, GOOD.ljust(999), GOOD.ljust(1000), GOOD]))
    events, said = skipped_lines(path)
    assert len(events) == 3 and "skipped 2 of 5 lines" in said and "line 2, ValueError: longer than 1000 bytes" in said


def test_many_lines_that_cannot_be_read(path: Path) -> None:
    path.write_bytes(b"x" * 50 + b"\n" + b"[]\n" * 20_000)
    events, said = skipped_lines(path)
    assert events == [] and "skipped 20001 of 20001" in said


def test_many_namedtuples_are_not_all_kept(path: Path) -> None:
    path.write_bytes(b"\n".join(line(f'{{"namedtuple(A)": {{"x{i}": 1}}}}') for i in range(1500)))
    assert len(read_jsonl(path)) == 1500
    gc.collect()
    assert sum(kind.__module__.startswith("jaxtap") for kind in tuple.__subclasses__()) < 1200


# Anything at all


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["float32[2]", "list()", "dict()", "int8()"]), inside)
    ),
    max_leaves=6,
)
KEYS = ["path", "step", "total", "kind", "value", "lane", "outer", "call", "time", "device", "begun", "value_kind"]


@settings(max_examples=100, deadline=None)
@given(record=st.dictionaries(st.sampled_from(KEYS), JSON))
@example(record={"path": "a", "step": 0, "value": 1, "time": 10**400})
def test_any_object_is_read_or_counted(tmp_path_factory: pytest.TempPathFactory, record: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join([GOOD, json.dumps(record).encode(), GOOD]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        events = read_jsonl([path, path])
    assert len(events) in (4, 6)
    assert {w.category for w in caught} <= {JaxtapWarning}


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 10**6), new=st.binary(min_size=1, max_size=4), cut=st.integers(0, 4))
def test_a_damaged_line_spoils_no_other(
    tmp_path_factory: pytest.TempPathFactory, at: int, new: bytes, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    value = {"a": np.arange(3, dtype="float32"), "b": (np.int8(1), [2, "c"]), "d": np.ones(40, "float64")}
    with JSONLWriter(path) as writer:
        for step in range(3):
            writer(TapEvent("scan[0]", step, value))
    lines = path.read_bytes().splitlines()
    at %= len(lines[2])
    lines[2] = lines[2][:at] + new.replace(b"\n", b"") + lines[2][at + cut :]
    path.write_bytes(b"\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxtapWarning)
        events = read_jsonl(path)
    assert {0, 2} <= {event.step for event in events} and len(events) in (2, 3)
