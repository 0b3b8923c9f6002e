"""The recorder: a sequence, a table, bounds, and an account."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap as tap


def nested(v: Any) -> Any:
    def body(c: dict[str, Any], x: Any) -> Any:
        c = {"a": c["a"] + x, "b": c["b"] * 2.0}
        inner = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + 1.0), (0, c["a"]))
        return {"a": inner[1], "b": c["b"]}, c["a"]

    return lax.scan(body, {"a": v, "b": jnp.ones(2)}, jnp.arange(3.0))


def test_events_are_a_sequence() -> None:
    with tap.record() as rec:
        assert len(rec.events) == 0
        nested(1.0)
    events = rec.events
    assert len(events) == 9 and events[-1] == list(events)[-1] and events[:2] == list(events)[:2]
    assert {type(e) for e in events} == {tap.TapEvent} and events == list(events)
    assert events[0].source.startswith("test_recorder.py:") and events[0].time > 1e9
    assert isinstance(events[-1].value[0], (np.ndarray, np.generic))
    rec.clear()
    assert len(rec.events) == 0


def test_columns() -> None:
    with tap.record(select=["a", "b"], select_ys=lambda leaves: leaves[0]) as rec:
        nested(1.0)
    table = rec.df()
    assert list(table.columns) == [
        "path", "kind", "step", "total", "lane", "outer", "call", "time", "c['a']", "c['b']", "value",
    ]  # fmt: skip
    assert len(table) == 6 and len(rec.df(kind="output")) == 3 and len(rec.df(kind="carry", path="scan[0]")) == 3
    assert list(rec.df(kind="output")["value"]) == [1.0, 4.0, 8.0]
    with pytest.raises(ValueError, match="'carry', 'output', 'primitive', 'mark'"):
        rec.df(kind="nonsense")


def test_columns_of_names_and_of_own_selectors() -> None:
    with tap.record(select="a") as rec:
        nested(1.0)
    assert list(rec.df()["a"]) == [3.0, 6.0, 10.0]
    with tap.record(select=lambda leaves: (leaves[0], leaves[1])) as rec:
        nested(1.0)
    assert {"value_0", "value_1"} <= set(rec.df().columns)
    with tap.record(where=lambda path: "while" in path) as rec:
        nested(1.0)
    table = rec.df()
    assert {"s[0]", "s[1]"} <= set(table.columns) and list(table["outer"]) == [0, 0, 1, 1, 2, 2]
    with tap.record() as rec:
        jax.vmap(jax.vmap(nested))(jnp.ones((2, 3)))
    assert {"lane_0", "lane_1"} <= set(rec.df().columns)


def test_without_pandas() -> None:
    code = "import sys; sys.modules['pandas'] = None; import jaxtap; jaxtap.FlightRecorder().df()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "pip install 'jaxtap-core[pandas]'" in done.stderr


def test_capacity() -> None:
    with pytest.warns(tap.JaxtapWarning, match="dropped") as said, tap.record(capacity=4) as rec:
        nested(1.0)
    assert len(rec.events) == 4 and rec.dropped == 5 and rec.report().dropped == 5
    assert sum("is full" in str(w.message) for w in said) == 1
    assert rec.events[-1].path == "scan[0]" and rec.events[-1].step == 2


def test_recorder_as_callback() -> None:
    recorder = tap.FlightRecorder()
    tap.verbose(nested, on_step=recorder)(1.0)
    assert len(recorder.events) == 9
    assert "nothing to account for" in repr(recorder.report())


def test_the_account() -> None:
    with tap.record(sample_every=2, select_ys=lambda leaves: leaves[0]) as rec:
        nested(1.0)
        nested(2.0)
    report = rec.report()
    outer, inner = report.loops
    assert (outer.path, outer.executions, outer.expected, outer.delivered, outer.sampled_out) == ("scan[0]", 2, 8, 8, 4)
    assert (inner.path, inner.executions, inner.expected, inner.sampled_out) == ("scan[0]/while[0]", 6, 6, 6)
    assert report.ok and "scan[0]/while[0]  6 x, 6/6 events  test_recorder.py" in repr(report)


def test_zero_trips_are_accounted_for() -> None:
    with tap.record() as rec:
        lax.while_loop(lambda c: c > 1e9, lambda c: c + 1.0, 1.0)
        lax.scan(lambda c, x: (c + x, None), 0.0, jnp.zeros(0))
    assert not rec.events and rec.report().ok and [loop.executions for loop in rec.report().loops] == [1, 1]


def test_silence_is_explained() -> None:
    with pytest.warns(tap.JaxtapWarning, match="no loop was seen: the code"), tap.record():
        jnp.sin(1.0)
    with pytest.warns(tap.JaxtapWarning, match="jax_disable_jit"), jax.disable_jit(), tap.record():
        lax.scan(lambda c, x: (c + x, None), 0.0, jnp.arange(3.0))
    with pytest.warns(tap.JaxtapWarning, match="2 loops were seen and none sent anything"), tap.record(ops=()):
        nested(1.0)


def test_a_name_that_no_loop_has() -> None:
    def program() -> None:
        lax.scan(lambda s, x: ({"position": s["position"] + x}, None), {"position": 1.0}, jnp.arange(3.0))

    with pytest.warns(tap.JaxtapWarning) as said, tap.record(select="positoin"):
        program()
    (only,) = [w for w in said if w.category is tap.JaxtapWarning]
    assert "no loop has a leaf named 'positoin'" in str(only.message) and "s['position'] (scan[0])" in str(only.message)
    assert only.filename == __file__
    g, _ = tap.record(program, select="positoin")
    with pytest.warns(tap.JaxtapWarning, match="nearest"):
        g()


def test_a_name_in_a_program_that_was_compiled_before() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        return lax.scan(lambda s, x: ({"position": s["position"] + x}, 2 * x), {"position": x}, jnp.arange(3.0))

    for options, count in (({"select": "position"}, 3), ({"select": ["position"], "select_ys": "ys"}, 6)):
        for _ in range(2):
            with warnings.catch_warnings(action="error"), tap.record(**options) as rec:
                program(1.0)
            assert len(rec.events) == count and rec.report().ok


@pytest.mark.parametrize(
    ("lens", "error", "says"),
    [
        ({"sample_every": 0}, ValueError, "sample_every must be an integer of at least 1"),
        ({"sample_every": 1.5}, ValueError, "sample_every must be an integer"),
        ({"max_depth": -1}, ValueError, "max_depth must be an integer of at least 0"),
        ({"ops": ("foo",)}, ValueError, "ops may hold 'scan' and 'while_loop'; got 'foo'"),
        ({"threads": "some"}, ValueError, "threads must be 'own' or 'all'"),
        ({"capacity": 0}, ValueError, "capacity must be an integer of at least 1"),
        ({"select": 5}, TypeError, "select must be a leaf name"),
        ({"select": []}, ValueError, "select must name at least one leaf"),
        ({"select_ys": [""]}, ValueError, "select_ys must name at least one leaf"),
        ({"on_step": 5}, TypeError, "on_step must be a function of an event, a sink with a method write"),
        ({"overflow": "wait"}, ValueError, "overflow must be 'block' or 'drop'; got 'wait'"),
        ({"where": 5}, TypeError, "where must be a glob over addresses"),
        ({"internals": 1}, TypeError, "internals must be True or False"),
    ],
)
def test_wrong_arguments(lens: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says.replace("(", r"\(")):
        tap.record(**lens)
    if "threads" not in lens and "capacity" not in lens:
        with pytest.raises(error, match=says.replace("(", r"\(")):
            tap.verbose(nested, **{"on_step": print, "on_ys": print, **lens})


def test_select_error_comes_before_anything_runs() -> None:
    ran: list[int] = []

    def program(v: Any) -> Any:
        jax.debug.callback(lambda: ran.append(1))
        return nested(v)

    with pytest.raises(tap.SelectError) as caught, tap.record(select=lambda leaves: leaves["nope"], max_depth=0):
        jax.jit(program)(1.0)
    said = str(caught.value)
    assert "scan[0]" in said and "test_recorder.py:" in said and "c['a'], 1: c['b']" in said and not ran
    with tap.record() as rec:
        jax.jit(program)(1.0)
    assert len(rec.events) == 9


def test_selectors() -> None:
    with tap.record(select=lambda leaves, path: {"at": path, "sum": leaves[0].sum()}) as rec:
        nested(1.0)
    assert {event.value["at"] for event in rec.events} == {"scan[0]", "scan[0]/while[0]"}
    with tap.record(select=lambda leaves, *, path: path) as rec:
        nested(1.0)
    assert all(event.value == event.path for event in rec.events)
    with tap.record(select=lambda leaves: leaves.tree(), max_depth=0) as rec:
        final, _ = nested(1.0)
    assert set(rec.events[-1].value) == {"a", "b"} and rec.events[-1].value["a"] == final["a"]
    with tap.record(select=lambda _: ()) as rec:
        nested(1.0)
    assert rec.events[0].value == ()
    with tap.record(ops=("while_loop",)) as rec:
        nested(1.0)
    assert {event.path for event in rec.events} == {"scan[0]/while[0]"}


def test_leaves() -> None:
    leaves = tap.Leaves([1, 2, 3], ["carry[0].position", "carry[1].ss_state.log", "carry[1].log"])
    assert leaves[0] == leaves["position"] == leaves["carry[0].position"] == 1 and leaves["ss_state.log"] == 2
    with pytest.raises(KeyError, match="end of several names"):
        leaves["log"]
    with pytest.raises(KeyError, match=r"nearest: carry\[0\].position"):
        leaves["positio"]
    with pytest.raises(ValueError, match="structure"):
        leaves.tree()


def test_keys_are_keys() -> None:
    def body(key: Any, _: Any) -> Any:
        key, sub = jax.random.split(key)
        return key, sub

    with tap.record(select_ys=lambda leaves: leaves[0]) as rec:
        last, subs = lax.scan(body, jax.random.key(3), None, length=4)
    carry = [e for e in rec.events if e.kind == "carry"]
    assert (jax.random.key_data(carry[-1].value[0]) == jax.random.key_data(last)).all()
    outputs = [e.value for e in rec.events if e.kind == "output"]
    assert all((jax.random.key_data(a) == jax.random.key_data(b)).all() for a, b in zip(outputs, subs, strict=True))


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint4", "int8", "uint16", "int32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2",
              "float32", "complex64"],
)  # fmt: skip
def test_dtypes_arrive_as_they_are(dtype: str) -> None:
    start = jnp.asarray(np.array([0, 1, 1, 0]), dtype)
    with tap.record() as rec:
        last = lax.fori_loop(0, 3, lambda i, c: c[::-1], start)
    value = rec.events[-1].value[1]
    assert value.dtype == last.dtype and value.tobytes() == np.asarray(last).tobytes()


def test_loops() -> None:
    found = tap.loops(nested, 1.0)
    assert [loop.path for loop in found] == ["scan[0]", "scan[0]/while[0]"]
    outer = found["scan[0]"]
    assert (outer.op, outer.total, [leaf.name for leaf in outer.carry]) == ("scan", 3, ["c['a']", "c['b']"])
    assert repr(outer.carry[1]) == "c['b']: float32[2]" and outer.outputs[0].name == "ys"
    assert "unknown trip count" in repr(found) and "test_recorder.py" in repr(found)
    shapes = [leaf.shape for leaf in tap.loops(jax.vmap(nested), jnp.ones(7))[0].carry]
    assert shapes == [(), (2,)]
    with pytest.raises(KeyError, match="no loop has the address"):
        found["scan[1]"]


def test_a_primitive_that_is_not_entered_is_named() -> None:
    a = jnp.eye(3) * 2.0 + 0.1

    def body(c: Any, _: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: a @ x, c, maxiter=2)[0], None

    def program(v: Any) -> Any:
        return lax.scan(body, v, None, length=3)[0]

    bare = program(jnp.ones(3))
    with tap.record(internals=True) as rec:
        assert (program(jnp.ones(3)) == bare).all()
    assert rec.report().unknown == ("custom_linear_solve",) and "not entered: custom_linear_solve" in repr(rec.report())
    assert {event.path for event in rec.events} == {"scan[0]"}


def test_loops_left_out_in_a_program_compiled_before_are_named() -> None:
    run = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2.0, x))
    with (
        pytest.warns(tap.JaxtapWarning, match="1 loops were seen and none sent anything"),
        tap.record(ops=("while_loop",)),
    ):
        run(1.0)
    says = r"no loop was seen: .*such a lens before .*\(ops=\('while_loop',\)\) leave out, such as scan\[0\]"
    with pytest.warns(tap.JaxtapWarning, match=says), tap.record(ops=("while_loop",)):
        run(1.0)
