"""Sinks take many events at once; user functions that cannot keep up hold the program up only so far."""

from __future__ import annotations

import pathlib
import re
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from core.flushes import flushed, story
from jax import lax

import jaxtap as tap
from jaxtap import _lens, _teller
from jaxtap._config import Host
from jaxtap._lens import Lens
from jaxtap._router import router


class Chunks:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.chunks: list[tap.TapChunk] = []

    def write(self, chunk: tap.TapChunk) -> None:
        self.chunks.append(chunk)

    @property
    def events(self) -> list[tap.TapEvent]:
        return [event for chunk in self.chunks for event in chunk.events()]


def nested(v: Any) -> Any:
    def body(c: dict[str, Any], x: Any) -> Any:
        c = {"a": c["a"] + tap.mark("x", x), "b": c["b"] * 2.0, "key": c["key"]}
        inner = lax.while_loop(lambda s: s[1] < c["a"], lambda s: (s[0] + 1, s[1] + 1.0), (0, 0.0))
        return {"a": c["a"] + inner[1], "b": c["b"], "key": jax.random.split(c["key"])[0]}, (c["a"], x)

    return lax.scan(body, {"a": v, "b": jnp.ones(2), "key": jax.random.key(0)}, jnp.arange(3.0))


PROGRAMS = {
    "one lane": lambda: nested(1.0),
    "lanes": lambda: jax.vmap(nested)(jnp.arange(3.0)),
    "lanes of lanes": lambda: jax.jit(jax.vmap(jax.vmap(nested)))(jnp.ones((2, 2))),
}


def by_path(events: Any) -> dict[Any, list[tap.TapEvent]]:
    found: dict[Any, list[tap.TapEvent]] = {}
    for event in events:
        found.setdefault((event.path, event.kind), []).append(event)
    return found


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_sink_is_given_what_a_recorder_keeps(program: Any) -> None:
    steps, outputs = Chunks(), Chunks()
    with tap.record(on_step=steps, on_ys=outputs) as rec:
        program()
    assert by_path([*steps.events, *outputs.events]) == by_path(rec.events)
    assert {event.kind for event in outputs.events} == {"output"}
    assert {event.kind for event in steps.events} == {"carry", "mark"}
    for chunk in steps.chunks:
        assert len(chunk) == len(chunk.steps) == len(chunk.outer) == len(chunk.lanes) == len(chunk.times)
        assert all(len(column) == len(chunk) for column in chunk.values.values())


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_recorder_as_sink_keeps_the_order(program: Any) -> None:
    second = tap.FlightRecorder()
    with tap.record(on_step=second) as rec:
        program()
    assert second.events == rec.events
    with tap.record(on_step=second.write) as rec:  # as a plain function it is given events
        pass


def test_columns_have_the_names_of_a_table() -> None:
    sink = Chunks()
    with tap.record(select=lambda leaves: {"a": leaves["a"], "what": "state", "key": leaves["key"]}, on_step=sink,
                    max_depth=0, marks=[]) as rec:  # fmt: skip
        nested(1.0)
    (columns,) = {tuple(chunk.values) for chunk in sink.chunks}
    assert columns == ("a", "key", "what")
    a = np.concatenate([chunk.values["a"] for chunk in sink.chunks])
    assert a.dtype == np.float32 and a.tolist() == rec.df()["a"].tolist()
    assert {chunk.values["what"] for chunk in sink.chunks} == {"state"}
    assert all(jnp.issubdtype(chunk.values["key"].dtype, jax.dtypes.prng_key) for chunk in sink.chunks)


def test_a_sink_is_told_of_single_events() -> None:
    sink = Chunks()
    with tap.record(on_step=sink, trace=True, taps=[tap.watch_nan()]) as rec:
        jax.jit(lambda v: lax.scan(lambda c, x: (jnp.log(c) + x, None), v, jnp.arange(4.0)))(1.0)
    assert by_path(sink.events) == by_path(rec.events)
    assert {"trace", "compile", "carry", "primitive"} <= {chunk.kind for chunk in sink.chunks}


def test_a_sink_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    class Fails:
        def write(self, chunk: tap.TapChunk) -> None:
            raise OSError("disk is gone")

    with tap.record(on_step=Fails(), on_ys=lambda event: None) as rec:
        nested(1.0)
    assert rec.report().failures["on_step"] >= 1 and not rec.report().ok
    assert capsys.readouterr().err.count("on_step raised OSError: disk is gone") == 1


def test_alerts_beside_a_sink(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Chunks()
    with tap.record(on_step=sink, alert=lambda event: event.step == 2, max_depth=0, marks=[]):
        nested(1.0)
    assert len(sink.events) == 3 and capsys.readouterr().err == "[tap] FAIL scan[0] 2/3: alert\n"


def test_a_sink_may_run_jax() -> None:
    seen: list[float] = []

    class Sums:
        def write(self, chunk: tap.TapChunk) -> None:
            seen.append(float(jax.jit(jnp.sum)(chunk.values["a"])))

    with tap.record(select="a", on_step=Sums()) as rec:
        nested(1.0)
    assert sum(seen) == pytest.approx(rec.df()["a"].sum())


def test_the_recipe_for_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    page = Path(__file__).parents[2] / "docs" / "howto" / "sinks.md"
    (recipe,) = re.findall(r"```python\n(class ParquetFolder.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"pathlib": pathlib, "pd": pd}
    exec(recipe, names)
    sink = names["ParquetFolder"](tmp_path / "run")
    with tap.record(on_step=sink, select=["a", "b"], max_depth=0, marks=[]) as rec:
        nested(1.0)
    table, expected = pd.read_parquet(tmp_path / "run"), rec.df()
    for name in ("path", "step", "call", "time", "c['a']"):
        assert table[name].tolist() == expected[name].tolist()
    assert [leaf.tolist() for leaf in table["c['b']"]] == [leaf.tolist() for leaf in expected["c['b']"]]
    rec.df().drop(columns=["total", "lane", "outer"]).to_parquet(tmp_path / "run.parquet")
    assert pd.read_parquet(tmp_path / "run.parquet")["step"].tolist() == expected["step"].tolist()


# --- Functions that cannot keep up ---------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue in which little may wait, and little patience."""
    monkeypatch.setattr(_lens, "MOST_BYTES", 0)
    monkeypatch.setattr(_teller, "MOST_EVENTS", 20)
    monkeypatch.setattr(_teller, "STALL_S", 0.3)


def fed(**host: Any) -> tuple[Lens, threading.Thread]:
    """A lens of user functions, and a thread that brings it what a program sends, a flush at a time."""
    lens, rows = story(10)
    lens = Lens(lens.view, Host(**host), tap.FlightRecorder())
    lens._patient = False  # a program that has ended does not wait here
    return lens, threading.Thread(target=flushed, args=(lens, rows, [float(i // 4) for i in range(len(rows))]))


@pytest.mark.usefixtures("narrow")
def test_the_program_waits_for_functions_that_return() -> None:
    told: list[tap.TapEvent] = []
    waiting: list[int] = []

    def slow(event: tap.TapEvent) -> None:
        time.sleep(0.002)
        told.append(event)
        waiting.append(lens._teller._events)

    lens, program = fed(on_step=slow, on_ys=slow)
    program.start()
    program.join()
    router.drain()
    report = lens.report()
    assert told == list(lens.recorder.events) and report.untold == 0  # pyright: ignore[reportOptionalMemberAccess]
    assert report.waited_s > 0.05 and max(waiting) < 20 + 4 * 12
    assert "missed 0 events, and the program waited" in repr(report)


@pytest.mark.usefixtures("narrow")
def test_the_program_does_not_wait_for_ever() -> None:
    """A function that needs what waits for it: it returns when the program has given up."""
    told: list[tap.TapEvent] = []

    def needs_the_program(event: tap.TapEvent) -> None:
        program.join()
        told.append(event)

    lens, program = fed(on_step=needs_the_program, on_ys=needs_the_program)
    start = time.monotonic()
    program.start()
    with pytest.warns(tap.JaxtapWarning, match="user functions cannot keep up"):
        program.join()
    assert time.monotonic() - start < 5.0
    router.drain()
    events, report = list(lens.recorder.events), lens.report()  # pyright: ignore[reportOptionalMemberAccess]
    assert report.untold > 100 and report.untold + len(told) == len(events) and not report.ok
    assert told[-5:] == events[-5:] and 0.3 < report.waited_s < 2.0


@pytest.mark.usefixtures("narrow")
def test_drop_keeps_the_newest() -> None:
    told: list[tap.TapEvent] = []
    go = threading.Event()

    def stuck(event: tap.TapEvent) -> None:
        go.wait()
        told.append(event)

    lens, program = fed(on_step=stuck, on_ys=stuck, overflow="drop")
    try:
        with pytest.warns(tap.JaxtapWarning, match="user functions cannot keep up") as said:
            program.start()
            program.join()
    finally:
        go.set()
    router.drain()
    events, report = list(lens.recorder.events), lens.report()  # pyright: ignore[reportOptionalMemberAccess]
    assert len(said) == 1 and report.waited_s == 0.0 and report.untold + len(told) == len(events)
    assert told[-1] == events[-1] and len(told) < 100
