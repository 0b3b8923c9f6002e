"""What a recording tells of programs before they run, and where it says that the time goes."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, monitoring

import jaxtap as tap
from jaxtap._compile_log import Compile
from jaxtap._frame import of_events
from jaxtap._timeline import timeline

pytestmark = pytest.mark.usefixtures("no_cache")


def program() -> Any:
    """A jitted function with a loop in a loop, new at each call."""

    def train(w: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            inner = lax.fori_loop(0, 2, lambda i, c: c * 0.5 + i, state["w"])
            return {"w": inner + x, "n": state["n"] + 1}, inner

        return lax.scan(step, {"w": w, "n": jnp.int32(0)}, xs)

    return jax.jit(train)


W, XS = jnp.ones(3), jnp.arange(4.0)


def of_kind(rec: Any, kind: str) -> list[tap.TapEvent]:
    return [event for event in rec.events if event.kind == kind]


def test_trace_events() -> None:
    f = program()
    with tap.record(trace=True) as rec:
        f(W, XS)
        f(W, XS)
        traced = of_kind(rec, "trace")
        assert [(e.path, e.value, e.total, e.step) for e in traced] == [
            ("scan[0]", {"state['n']": "i32[]", "state['w']": "f32[3]"}, 4, -1),
            ("scan[0]/scan[0]", {"i": "i32[]", "c": "f32[3]"}, 2, -1),
        ]
        assert all(e.source.startswith("test_timeline.py:") for e in traced)
        f(W, XS[:2])
    # The inner loop is the same as before.
    assert [(e.path, e.total) for e in of_kind(rec, "trace")][2:] == [("scan[0]", 2)]
    assert {event.path for event in of_kind(rec, "carry")} == {event.path for event in of_kind(rec, "trace")}
    assert rec.report().ok


def test_compile_events() -> None:
    f = program()
    with tap.record(trace=True) as rec:
        f(W, XS)
        f(W, XS[:2])
    first, again = of_kind(rec, "compile")
    assert (first.path, first.value["cause"], first.value["number"]) == ("train", "first", 1)
    assert (again.value["cause"], again.value["number"], again.value["cache"]) == ("shape", 2, "not written")
    assert "argument xs f32[4] → f32[2]" in again.value["reason"]
    assert first.value["compile_seconds"] > 0 and first.source.endswith("(train)")
    assert [row.name for row in rec.compiles if not row.of_jax] == ["train", "train"]
    kinds = [event.kind for event in rec.events]
    assert kinds.index("trace") < kinds.index("compile") < kinds.index("carry")
    assert kinds[len(kinds) - kinds[::-1].index("compile") :].count("carry") == 2 * (1 + 2)


def test_without_trace_there_are_none() -> None:
    with tap.record() as rec:
        program()(W, XS)
    assert {event.kind for event in rec.events} == {"carry"} and not rec.compiles


@pytest.mark.parametrize("options", [{}, {"select": "w", "sample_every": 2}, {"ops": ()}], ids=str)
def test_what_is_compiled_is_the_same(options: dict[str, Any]) -> None:
    with warnings.catch_warnings(action="ignore"), tap.record(**options):
        without = program().lower(W, XS).as_text()
    with tap.record(trace=True, **options) as rec:
        assert program().lower(W, XS).as_text() == without
    assert len(of_kind(rec, "trace")) == 2
    if options == {"ops": ()}:
        assert program().lower(W, XS).as_text() == without


def test_one_program_serves_both() -> None:
    f, traces = program(), []
    g = jax.jit(lambda w, xs: (traces.append(1), f(w, xs))[1])
    for options in ({}, {"trace": True}, {}):
        with tap.record(**options) as rec:
            g(W, XS)
    assert len(traces) == 1 and len(of_kind(rec, "carry")) == 12


def test_on_step_and_jsonl(tmp_path: Any) -> None:
    writer = tap.JSONLWriter(tmp_path / "run.jsonl")
    with writer, tap.record(trace=True, on_step=writer) as rec:
        program()(W, XS)
    back = tap.read_jsonl(tmp_path / "run.jsonl")
    assert [(e.kind, e.path) for e in back] == [(e.kind, e.path) for e in rec.events]
    early = [(e.value, e.source) for e in back if e.kind in ("trace", "compile")]
    assert early == [(e.value, e.source) for e in rec.events if e.kind in ("trace", "compile")]
    assert not writer.replaced


def test_the_wrapping_form() -> None:
    g, rec = tap.record(program(), trace=True)
    g(W, XS)
    g(W, XS)
    g(W, XS[:2])
    assert [e.value["cause"] for e in of_kind(rec, "compile")] == ["first", "shape"]
    assert len(of_kind(rec, "trace")) == 3


def test_the_table_holds_numbers_unless_asked() -> None:
    pytest.importorskip("pandas")
    with tap.record(trace=True, select="w", where=lambda path: "/" not in path) as rec:
        program()(jnp.float32(1.0), XS)
    assert set(rec.df().kind) == {"carry"} and rec.df().w.dtype == float
    assert rec.df(kind="trace")["state['w']"].iloc[0] == "f32[]"
    assert list(rec.df(kind="compile").cause) == ["first"]
    with pytest.raises(ValueError, match="'trace', 'compile'"):
        rec.df(kind="traces")


def test_timeline() -> None:
    f = program()
    with tap.record(trace=True) as rec:
        f(W, XS)
        f(W, XS)
    spans = rec.timeline()
    assert [(span.station, span.name) for span in spans] == [
        ("trace", "train"),
        ("lower", "train"),
        ("compile", "train"),
        ("execute", "scan[0]"),
        ("execute", "scan[0]"),
    ]
    assert all(a.start <= b.start for a, b in itertools.pairwise(spans))
    trace, _, compiled, first, second = spans
    row = next(row for row in rec.compiles if row.name == "train")
    assert (trace.seconds, compiled.seconds) == (row.trace_seconds, row.compile_seconds)
    assert isinstance(first, tap.Run) and isinstance(second, tap.Run) and spans.runs == (first, second)
    assert compiled.start + compiled.seconds <= first.first_event + 1e-6
    assert first.start + first.seconds <= second.first_event + 1e-6
    assert (first.steps, first.total, first.call, second.call) == (4, 4, 0, 1)
    text = repr(spans).splitlines()
    assert len(text) in (5, 6) and text[0].startswith("    0.000 s  trace") and "4 of 4 steps" in text[3]


def test_forecast_while_it_runs() -> None:
    seen: list[Any] = []

    def slow(c: Any, x: Any) -> Any:
        wait = lambda v: (time.sleep(0.02), v)[1]  # noqa: E731
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), c + x), None

    def look(event: tap.TapEvent) -> None:
        if event.kind == "carry" and event.step == 20:
            seen.append(recorder.timeline())

    with tap.record(trace=True, on_step=look, capacity=None) as recorder:
        jax.block_until_ready(jax.jit(lambda v: lax.scan(slow, v, jnp.arange(40.0)))(jnp.float32(0.0)))
    ((run,),) = [spans.runs for spans in seen]
    whole = recorder.timeline().runs[0].seconds
    assert 21 <= run.steps <= 40 and run.total == 40 and run.step_seconds > 0.015
    assert 0.5 * whole < run.forecast < 2.0 * whole
    assert run.remaining == pytest.approx(run.step_seconds * (40 - run.steps))
    if run.steps < 40:
        assert "s in all, " in repr(seen[0]) and "s to go" in repr(seen[0])


def test_the_arithmetic_of_a_forecast() -> None:
    row = Compile("f", time=100.0, trace_seconds=1.0, lowering_seconds=2.0, compile_seconds=3.0)
    jax_own = Compile("add", time=90.0, compile_seconds=0.5, of_jax=True)
    times = [(0, 107.0), (1, 107.0), (2, 107.5), (3, 107.5), (5, 109.0)]
    events = [tap.TapEvent("scan[0]", step, 0.0, 11, time=at) for step, at in times]
    inner = [tap.TapEvent("scan[0]/scan[0]", 0, 0.0, 2, outer=(0,), time=107.0)]
    spans = timeline([jax_own, row], of_events([*events, *inner])[0])
    assert [(s.station, s.start, s.seconds) for s in spans] == [
        ("trace", 100.0, 1.0),
        ("lower", 101.0, 2.0),
        ("compile", 103.0, 3.0),
        ("execute", 106.0, 3.0),
    ]
    (run,) = spans.runs
    assert (run.steps, run.step_seconds, run.forecast, run.remaining) == (6, 0.5, 5.5, 2.5)
    assert repr(spans).splitlines()[-2:] == [
        "    6.000 s  execute     3.000 s  scan[0]  first event after 1.000 s, 6 of 11 steps, 0.5 s a step: "
        "5.500 s in all, 2.500 s to go",
        "besides, 0.500 s on functions of JAX's own",
    ]
    assert repr(timeline([], [])) == "nothing has run"
    unknown = timeline([], of_events([tap.TapEvent("while[0]", 3, 0.0, None, time=1.0)])[0]).runs[0]
    assert (unknown.step_seconds, unknown.forecast, unknown.remaining) == (None, None, None)


class Bus:
    """Counts the listeners that are added to JAX's event bus and taken away again."""

    def __init__(self, monkeypatch: Any) -> None:
        self.count = 0
        names = ("event_listener", "event_duration_secs_listener", "scalar_listener")
        for name in names:
            self._wrap(monkeypatch, f"register_{name}", 1)
            self._wrap(monkeypatch, f"unregister_{name.replace('_secs', '')}", -1)

    def _wrap(self, monkeypatch: Any, name: str, change: int) -> None:
        original = getattr(monitoring, name)

        def call(listener: Any) -> None:
            original(listener)
            self.count += change

        monkeypatch.setattr(monitoring, name, call)


def test_nothing_is_left_on_the_bus(monkeypatch: Any) -> None:
    bus = Bus(monkeypatch)
    with tap.record() as rec:
        assert bus.count == 0
    with tap.record(trace=True), tap.record(trace=True):
        assert bus.count == 6
    assert bus.count == 0
    with pytest.raises(KeyError), tap.record(trace=True) as rec:
        raise KeyError("boom")
    assert bus.count == 0
    g, rec = tap.record(program(), trace=True)
    g(W, XS)
    assert bus.count == 0 and len(of_kind(rec, "compile")) == 1
    left_open = tap.record(trace=True)
    left_open.__enter__()
    assert bus.count == 3
    tap.emergency_restore()
    assert bus.count == 0


def test_a_wrapped_function_in_two_threads(monkeypatch: Any) -> None:
    bus, start = Bus(monkeypatch), threading.Barrier(2)
    functions = [program(), program()]
    g, rec = tap.record(lambda i, w, xs: functions[i](w, xs), trace=True)

    def run(i: int) -> None:
        start.wait()
        for n in (4, 3, 2):
            g(i, W, np.arange(float(n), dtype=np.float32))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.count == 0 and len(of_kind(rec, "compile")) == 6


def test_a_fault_of_the_events_is_none_of_the_program(monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("telemetry")

    monkeypatch.setattr("jaxtap._lens.trace_event", fail)
    with pytest.warns(tap.JaxtapWarning, match="telemetry"), tap.record(trace=True) as rec:
        program()(W, XS)
    assert len(of_kind(rec, "carry")) == 12 and not of_kind(rec, "trace")
