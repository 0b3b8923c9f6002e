"""Compile events: one program for each cause of a retrace, every gate of the persistent cache, nothing left behind."""

from __future__ import annotations

import functools
import logging
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, monitoring

import jaxtap as tap

pytestmark = pytest.mark.usefixtures("no_cache")


class Config:
    """A static argument that is never equal to another."""

    def __repr__(self) -> str:
        return "Config()"


def jitted(**options: Any) -> Any:
    """A function of its own for each program, so that one never finds the traces of another."""

    def train_step(params: Any, batch: Any = None, n: Any = 0) -> Any:
        return jax.tree.map(lambda leaf: leaf * 2, params)

    return jax.jit(train_step, **options)


X = np.ones((32, 4), np.float32)


def other_function(f: Any) -> None:
    for scale in (1.0, 2.0):
        jax.jit(lambda v, scale=scale: v * scale)(X)


def redefined(f: Any) -> None:
    for _ in range(2):
        space: dict[str, Any] = {}
        exec(compile("def loss(v):\n    return v + 1", "cell.py", "exec"), space)
        jax.jit(space["loss"])(X)


def bound_method(f: Any) -> None:
    class Model:
        def loss(self, v: Any) -> Any:
            return v + 1

    for _ in range(2):
        jax.jit(Model().loss)(X)


def structure(f: Any) -> None:
    f({"w": X})
    f({"w": X, "b": X})


def list_or_tuple(f: Any) -> None:
    f([X])
    f((X,))


def optional(f: Any) -> None:
    f(X)
    f(X, X)


def by_keyword(f: Any) -> None:
    f(X, X)
    f(X, batch=X)


def static(f: Any) -> None:
    f(X, n=2)
    f(X, n=3)


def static_by_position(f: Any) -> None:
    f(X, None, 2)
    f(X, None, 3)


def static_without_eq(f: Any) -> None:
    f(X, n=Config())
    f(X, n=Config())


def shape(f: Any) -> None:
    f(X, {"x": X})
    f(X, {"x": X[:17]})


def rank(f: Any) -> None:
    f(X, {"x": X[0]})
    f(X, {"x": X})


def dtype(f: Any) -> None:
    f(X, {"x": X})
    f(X, {"x": X.astype(np.int32)})


def shape_and_dtype(f: Any) -> None:
    f(X, X)
    f(X, X[:2].astype(np.int32))


def weak_type(f: Any) -> None:
    f(X, 1.0)
    f(X, np.float32(1.0))


def the_nearest(f: Any) -> None:
    f(X, X)
    f([X, X], X[:1])
    f(X, X[:5])


def x64(f: Any) -> None:
    f(X)
    with jax.enable_x64(True):
        f(X)


def precision(f: Any) -> None:
    f(X)
    with jax.default_matmul_precision("highest"):
        f(X)


def user_context(f: Any) -> None:
    f(X)
    with jax.make_user_context(0)(1):
        f(X)


def cleared(f: Any) -> None:
    f(X)
    f.clear_cache()
    f(X)


Program = Callable[[Any], None]
# The program, options of `jit`, then cause, argument, before and after of what made JAX trace a second time.
CAUSES: list[tuple[Program, dict[str, Any], tuple[str, ...]]] = [
    (other_function, {}, ("function", "a new function object", "", "")),
    (redefined, {}, ("function", "a new function object", "", "")),
    (bound_method, {}, ("function", "a new function object", "", "")),
    (structure, {}, ("structure", "params", "{'w': *}", "{'b': *, 'w': *}")),
    (list_or_tuple, {}, ("structure", "params", "[*]", "(*,)")),
    (optional, {}, ("structure", "batch", "not given", "f32[32,4]")),
    (by_keyword, {}, ("structure", "batch", "by position", "by keyword")),
    (static, {"static_argnames": "n"}, ("static", "n", "2", "3")),
    (static_by_position, {"static_argnums": 2}, ("static", "n", "2", "3")),
    (static_without_eq, {"static_argnames": "n"}, ("static", "n", "Config()", "Config()")),
    (shape, {}, ("shape", "batch['x']", "f32[32,4]", "f32[17,4]")),
    (rank, {}, ("shape", "batch['x']", "f32[4]", "f32[32,4]")),
    (dtype, {}, ("dtype", "batch['x']", "f32[32,4]", "i32[32,4]")),
    (shape_and_dtype, {}, ("shape", "batch", "f32[32,4]", "i32[2,4]")),
    (weak_type, {}, ("weak_type", "batch", "f32[] weak", "f32[]")),
    (the_nearest, {}, ("shape", "batch", "f32[32,4]", "f32[5,4]")),
    (x64, {}, ("context", "jax_enable_x64", "False", "True")),
    (precision, {}, ("context", "jax_default_matmul_precision", "None", "highest")),
    (user_context, {}, ("unknown", "nothing that can be compared has changed", "", "")),
    (cleared, {}, ("unknown", "nothing that can be compared has changed", "", "")),
]


@pytest.mark.parametrize(("program", "options", "expected"), CAUSES, ids=[c[0].__name__ for c in CAUSES])
def test_why_it_was_traced_again(program: Program, options: dict[str, Any], expected: tuple[str, ...]) -> None:
    with tap.compiles() as log:
        program(jitted(**options))
    first, *_, again = [row for row in log if not row.of_jax]
    assert first.cause == "first" and first.number == 1 and not first.changes
    assert again.number == (3 if program is the_nearest else 2)
    found = [(c.cause, c.argument, c.before, c.after) for c in again.changes]
    if program is shape_and_dtype:
        assert found.pop() == ("dtype", *expected[1:]) and again.reason.count("→") == 1
    assert found == [expected]


def test_a_lens_is_a_context() -> None:
    f = jitted()
    with tap.compiles() as log:
        f(X)
        with tap.record(where=lambda path: False) as rec:
            f(X)
            lax.scan(lambda c, x: (c + x, None), 0.0, jnp.arange(3.0))
    assert not rec.events
    change = log.of("train_step")[1].changes[0]
    assert (change.cause, change.argument, change.before) == ("context", "jaxtap", "no lens")


def test_the_sentence() -> None:
    f = jitted()
    with tap.compiles() as log:
        for batch in (X, X.astype(np.int32), X[:17]):
            f(X, {"x": batch})
    row = log.of("train_step")[2]
    assert row.reason == ("train_step traced again (3rd time): argument batch['x'] f32[32,4] → f32[17,4] (last batch?)")
    assert row.arguments == (("params", "f32[32,4]"), ("batch['x']", "f32[17,4]"))
    assert row.source.startswith("test_compiles.py:") and row.source.endswith("(train_step)")
    assert row.called_from.startswith("test_compiles.py:") and row.called_from.endswith("(test_the_sentence)")
    assert row.trace_seconds is not None and row.lowering_seconds is not None and row.compile_seconds is not None
    assert row.seconds == row.trace_seconds + row.lowering_seconds + row.compile_seconds > 0
    assert 0 < log[0].elapsed < row.elapsed and row.elapsed == row.time - log.began
    assert row.cache == "not written" and "no directory set" in row.cache_note


def test_a_new_function_says_whether_one_line_made_it() -> None:
    with tap.compiles() as log:
        other_function(None)
        redefined(None)
    assert "the same line made it again" in log.of("<lambda>")[1].reason
    assert "run again" in log.of("loss")[1].reason


def test_long_arguments_are_cut_where_they_differ() -> None:
    f, tree = jitted(static_argnames="n"), {f"layer_{i}": X[0] for i in range(20)}
    with tap.compiles() as log:
        f(tree, n=tuple(range(40)))
        f({**tree, "layer_9": [X[0]]}, n=tuple(range(40)))
        f(tree, n=(*range(39), 7))
    structure, static = (row.changes[0] for row in log.of("train_step")[1:])
    assert structure.before.endswith("'layer_9': *}") and structure.after.endswith("'layer_9': [*]}")
    assert static.before.endswith(" 38, 39)") and static.after.endswith(" 38, 7)")
    assert all(text.startswith("...") and len(text) <= 60 for text in (structure.after, static.after))


def test_a_static_argument_without_eq_is_told() -> None:
    with tap.compiles() as log:
        static_without_eq(jitted(static_argnames="n"))
    assert "define __eq__ and __hash__" in log.of("train_step")[1].reason


def test_functions_that_share_a_line_under_a_wrapper_are_different_ones() -> None:
    def loss(v: Any) -> Any:
        return (v * v).sum()

    with tap.compiles() as log:
        jax.jit(loss)(X)
        jax.jit(jax.grad(loss))(X)
        jax.jit(functools.partial(loss))(X)
    assert [row.cause for row in log if not row.of_jax] == ["first"] * 3


def test_callable_objects_partials_and_tracers() -> None:
    class Model:
        def __init__(self) -> None:
            self.scale = 2.0

        def __call__(self, v: Any) -> Any:
            return v * self.scale

    class Deeper(Model):
        pass

    def power(n: Any, v: Any) -> Any:
        return v**n

    with tap.compiles() as log:
        for model in (Model(), Model(), Deeper()):
            jax.jit(model)(X)
        for n in (2.0, 3.0):
            jax.jit(functools.partial(power, n))(X)
        inner = jax.jit(lambda v: v + 1)
        jax.vmap(inner)(X)
        jax.vmap(inner)(X[:2])
        jax.grad(jax.jit(lambda v: (v**2).sum()))(X)
    rows = [row for row in log if not row.of_jax]
    models = [(row.name, row.number, row.cause) for row in rows[:3]]
    assert models == [("Model", 1, "first"), ("Model", 2, "function"), ("Deeper", 3, "function")]
    assert all(row.arguments == (("v", "f32[32,4]"),) for row in rows[:5])
    assert all(row.source.startswith("test_compiles.py:") for row in rows[:5])
    assert "the same line made it again" in rows[1].reason and "the same line made it again" in rows[4].reason
    assert all(row.called_from.startswith("test_compiles.py:") for row in rows)
    mapped = [row for row in rows[5:] if row.arguments == (("v", "f32[4]"),)]
    assert mapped and all(row.number == 0 for row in mapped)


def test_what_is_only_compiled_again() -> None:
    f = jitted()
    with tap.compiles() as log:
        f(X)
        jax.jit(f.__wrapped__, donate_argnums=0, keep_unused=True)(jnp.array(X))
    again = log.of("train_step")[1]
    assert (again.number, again.trace_seconds, again.cause) == (0, None, "options")
    assert "train_step compiled again: jit option donate_argnums () → (0,)" in again.reason


def test_a_call_that_has_its_program_is_silent() -> None:
    f = jitted()
    f(X)
    with tap.compiles() as log:
        f(X)
        jax.jit(f.__wrapped__)(X)
    assert not log.of("train_step")


def test_ahead_of_time() -> None:
    f = jitted()
    with tap.compiles() as log:
        lowered = f.lower(jax.ShapeDtypeStruct((3,), jnp.float32))
        assert log[0].lowering_seconds is not None and log[0].compile_seconds is None and not log[0].cache
        lowered.compile()
    (row,) = log
    assert row.arguments == (("params", "f32[3]"),) and row.compile_seconds is not None


def test_a_trace_that_fails_is_no_row_and_no_trouble() -> None:
    @jax.jit
    def wrong(v: Any) -> Any:
        raise KeyError("mine")

    with tap.compiles() as log, pytest.raises(KeyError, match="mine"):
        wrong(X)
    assert not log.of("wrong") or log.of("wrong")[0].number == 0


def test_functions_of_jax_are_one_line_of_the_report() -> None:
    jax.clear_caches()
    with tap.compiles(alert_after=1) as log:
        for n in (3, 4, 5):
            jnp.ones(n) + jnp.zeros(n)
    assert log and all(row.of_jax for row in log)
    assert "of JAX's own functions: " in log.report()


def test_alert(capsys: Any) -> None:
    f = jitted()
    with tap.compiles(alert_after=2):
        for n in range(1, 7):
            f(X[:n])
            assert capsys.readouterr().err.count("\n") == (n == 3)
    with tap.compiles(alert_after=2):
        f(X[:7])
        f(X[:8])
        f(X[:9])
    assert capsys.readouterr().err.startswith(
        "[tap] train_step traced again (3rd time): argument params f32[8,4] → f32[9,4], at test_compiles.py:"
    )


def test_report_and_table() -> None:
    pd = pytest.importorskip("pandas")
    f = jitted()
    with tap.compiles() as log:
        f(X)
        f(X[:2])
    table = log.df()
    assert isinstance(table, pd.DataFrame) and len(table) == len(log)
    mine = table[table.name == "train_step"]
    assert list(mine.cause) == ["first", "shape"] and list(mine.after) == ["", "f32[2,4]"]
    lines = log.report().splitlines()
    assert lines[0].startswith("2 compiles, ") and lines[-1].startswith("2 not written to the persistent cache: no dir")
    assert {line.split()[-2] for line in (lines[2], lines[4])} == {log[0].source.split()[0]}
    totals = [float(line.split()[0]) for line in (lines[2], lines[4])]
    assert totals == sorted(totals, reverse=True)
    with tap.compiles() as empty:
        pass
    assert list(empty.df().columns) == list(table.columns) and empty.report() == "0 compiles, 0.000 s"


def test_threads() -> None:
    def run(f: Any) -> None:
        thread = threading.Thread(target=f, args=(X,))
        thread.start()
        thread.join()

    with tap.compiles() as own, tap.compiles(threads="all") as everyone:
        run(jitted())
        jitted()(X)
    assert len(own.of("train_step")) == 1 and len(everyone.of("train_step")) == 2


def test_two_logs_at_once() -> None:
    f = jitted()
    with tap.compiles() as outer:
        f(X)
        with tap.compiles() as inner:
            f(X[:3])
        f(X[:4])
    assert [row.number for row in outer.of("train_step")] == [1, 2, 3]
    assert [row.number for row in inner.of("train_step")] == [1]


class Heard:
    """Another listener's ears."""

    def __init__(self) -> None:
        self.events: list[str] = []
        monitoring.register_event_listener(self._on)
        monitoring.register_event_duration_secs_listener(self._on)
        monitoring.register_scalar_listener(self._on)

    def _on(self, event: str, *_: Any, **__: Any) -> None:
        self.events.append(event)

    def close(self) -> None:
        monitoring.unregister_event_listener(self._on)
        monitoring.unregister_event_duration_listener(self._on)
        monitoring.unregister_scalar_listener(self._on)


def listeners() -> list[list[Any]]:
    from jax._src import monitoring as private  # noqa: PLC0415, TID251 - only to see that nothing is left in there

    return [
        list(private._event_listeners),
        list(private._event_duration_secs_listeners),
        list(private._scalar_listeners),
        list(private._event_time_span_listeners),
    ]


def loggers() -> list[Any]:
    names = ["", *(name for name in logging.root.manager.loggerDict if name.startswith("jax"))]
    return [
        (n, logging.getLogger(n).level, *logging.getLogger(n).handlers, *logging.getLogger(n).filters) for n in names
    ]


def test_nothing_is_left_behind_and_other_listeners_hear_all() -> None:
    heard, f = Heard(), jitted()
    try:
        before, logs, config = listeners(), loggers(), dict(jax.config.values)
        f(X)
        without = list(heard.events)
        heard.events.clear()
        with pytest.raises(KeyError), tap.compiles() as log:
            f(X[:3])
            raise KeyError("boom")
        assert heard.events == without and len(log.of("train_step")) == 1
        assert (listeners(), loggers(), dict(jax.config.values)) == (before, logs, config)
        f(X[:4])
        assert len(log.of("train_step")) == 1
    finally:
        heard.close()


def test_a_program_that_clears_all_listeners() -> None:
    kept = listeners()
    try:
        with tap.compiles() as log:
            monitoring.clear_event_listeners()
            jitted()(X)
        assert not log
    finally:
        for register, found in zip(
            (
                monitoring.register_event_listener,
                monitoring.register_event_duration_secs_listener,
                monitoring.register_scalar_listener,
                monitoring.register_event_time_span_listener,
            ),
            kept,
            strict=True,
        ):
            for listener in found:
                register(listener)


def test_emergency_restore_closes_logs() -> None:
    before = listeners()
    tap.compiles().__enter__()
    assert listeners() != before
    tap.emergency_restore()
    assert listeners() == before


def test_the_program_is_the_same_under_a_log() -> None:
    f, g = jitted(), jitted()
    bare = f.lower(X).as_text()
    with tap.compiles():
        assert g.lower(X).as_text() == bare


def test_a_fault_of_the_log_is_none_of_the_program(monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("telemetry")

    monkeypatch.setattr("jaxtap._compiles.signature", fail)
    with pytest.warns(tap.JaxtapWarning, match="telemetry"), tap.compiles():
        assert jitted()(X) is not None


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="alert_after must be an integer of at least 1"):
        tap.compiles(alert_after=0)
    with pytest.raises(ValueError, match="threads must be"):
        tap.compiles(threads="some")
    with tap.compiles() as log:
        pass
    context = tap.compiles()
    with context, pytest.raises(RuntimeError, match="open already"):
        context.__enter__()
    assert not log


# --- In processes of their own: devices and the persistent cache belong to the whole process ----------------------


def run(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out.splitlines()


def test_sharding_and_mesh() -> None:
    code = """
        import jax, numpy as np, jaxtap as tap
        from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
        x = np.ones(8, np.float32)
        @jax.jit
        def f(x):
            return x * 2
        def put(kind, *spec):
            return jax.device_put(x, NamedSharding(jax.make_mesh((4,), ("a",), axis_types=(kind,)), P(*spec)))
        with tap.compiles() as log:
            f(x)
            f(jax.device_put(x, jax.devices()[0]))
            f(jax.device_put(x, jax.devices()[1]))
            f(put(AxisType.Auto, "a"))
            f(put(AxisType.Auto))
            f(put(AxisType.Explicit))
            f(put(AxisType.Explicit, "a"))
            with jax.set_mesh(jax.make_mesh((4,), ("b",), axis_types=(AxisType.Auto,))):
                f(x)
        for row in log.of("f"):
            print(row.number, *[" ".join((c.cause, c.argument, c.before, "→", c.after)) for c in row.changes])
    """
    assert output(run(code, XLA_FLAGS="--xla_force_host_platform_device_count=4")) == [
        "1",
        "0 sharding x left to JAX → cpu:0",
        "0 sharding x cpu:0 → cpu:1",
        "2 sharding x cpu:1 → P('a',) over (a=4:Auto)",
        "0 sharding x P('a',) over (a=4:Auto) → P() over (a=4:Auto)",
        "3 sharding x P() over (a=4:Auto) → P() over (a=4:Explicit)",
        "4 sharding x P() over (a=4:Explicit) → P('a',) over (a=4:Explicit)",
        "5 context mesh none → b=4:Auto",
    ]


def test_every_gate_of_the_persistent_cache(tmp_path: Any) -> None:
    code = """
        import sys
        import jax, numpy as np, jaxtap as tap
        x = np.ones(3, np.float32)
        def made(body, **options):
            for name, value in options.items():
                jax.config.update(name, value)
            with tap.compiles() as log:
                jax.jit(body)(x)
            row, = [row for row in log if not row.of_jax]
            print(row.cache, row.cache_note, sep="|")
        called = lambda v: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((3,), "float32"), v)
        seconds, size = "jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"
        made(lambda v: v * 1)
        made(lambda v: v * 2, **{"jax_compilation_cache_dir": sys.argv[1], seconds: 0.0, size: -1})
        jax.clear_caches()
        made(lambda v: v * 2)
        made(lambda v: v * 3, **{seconds: 100.0})
        made(lambda v: v * 4, **{seconds: 0.0, size: 10**9})
        made(called, **{size: -1})
    """
    lines = output(run(code.replace("sys.argv[1]", repr(str(tmp_path)))))
    kept = jax.__version_info__ >= (0, 11)
    assert lines == [
        "not written|no directory set: jax_compilation_cache_dir is None",
        "written|",
        "hit|",
        "not written|faster than the minimum: jax_persistent_cache_min_compile_time_secs is 100",
        "not written|smaller than the minimum: jax_persistent_cache_min_entry_size_bytes is 1000000000",
        "written|" if kept else "not written|the program calls Python, and such a program is not kept",
    ]


def test_a_cache_that_is_off(tmp_path: Any) -> None:
    code = """
        import jax, jaxtap as tap
        jax.config.update("jax_compilation_cache_dir", DIRECTORY)
        for on in (False, True):
            jax.config.update("jax_enable_compilation_cache", on)
            with tap.compiles() as log:
                jax.jit(lambda v: v + 2)(1.0)
            print(log.of("<lambda>")[0].cache_note)
    """
    assert output(run(code.replace("DIRECTORY", repr(str(tmp_path))))) == [
        "the cache is off: jax_enable_compilation_cache is False",
        "JAX did not ask: the cache was off when the first program was compiled, or the backend has none",
    ]


def test_only_the_first_process_writes(tmp_path: Any) -> None:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    code = """
        import jax, numpy as np, jaxtap as tap
        jax.distributed.initialize("localhost:PORT", 2, INDEX)
        jax.config.update("jax_compilation_cache_dir", DIRECTORY)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        with tap.compiles() as log:
            jax.jit(lambda v: v * INDEX)(np.ones(3, np.float32))
        print(log.of("<lambda>")[0].cache, log.of("<lambda>")[0].cache_note, sep="|")
    """
    code = code.replace("PORT", str(port)).replace("DIRECTORY", repr(str(tmp_path)))
    processes = [run(code.replace("INDEX", str(i))) for i in range(2)]
    assert [output(process) for process in processes] == [
        ["written|"],
        ["not written|only process 0 writes: this is process 1"],
    ]
