"""When a lens is gone, nothing of it is: no event, no effect, no trace, no hook."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.core import primitives

import jaxtap as tap


class Counted:
    """A jitted loop that counts how often it is traced."""

    def __init__(self) -> None:
        self.traces = 0
        self.call = jax.jit(self._run)

    def _run(self, v: Any) -> Any:
        self.traces += 1
        return lax.scan(lambda c, x: (c * 0.5 + x, c), v, jnp.arange(5.0))[0]


def hooks() -> list[Any]:
    return [vars(getattr(primitives, name)).get("bind") for name in ("scan_p", "while_p", "cond_p", "remat_p")]


def test_the_same_function_runs_clean_afterwards() -> None:
    before, f, v = hooks(), Counted(), jnp.ones(3)
    f.call(v)
    with tap.record() as rec:
        assert hooks() != before
        f.call(v)
    assert hooks() == before
    assert (len(rec.events), f.traces) == (5, 2)
    f.call(v)
    assert (len(rec.events), f.traces) == (5, 2)
    assert not jax.make_jaxpr(f.call)(v).effects
    assert f.call.lower(v).as_text() == Counted().call.lower(v).as_text()


def test_a_second_lens_traces_nothing_again() -> None:
    f, v = Counted(), jnp.ones(3)
    for _ in range(3):
        with tap.record(select="c", sample_every=2) as rec:
            f.call(v)
        assert [event.step for event in rec.events] == [0, 2, 4]
    assert f.traces == 1


def body(c: Any, x: Any) -> Any:
    return c * 0.5 + x, c


def outer(c: Any, _: Any) -> Any:
    return lax.scan(body, c, jnp.arange(3.0))[0], None


def below_five(c: Any) -> Any:
    return c < 5


def one_more(c: Any) -> Any:
    return c + 1


def looped(c: Any) -> Any:
    return outer(c, None)[0]


kept = jax.checkpoint(looped)

EAGER: dict[str, Callable[[], Any]] = {
    "scan": lambda: lax.scan(body, 1.0, jnp.arange(3.0)),
    "while": lambda: lax.while_loop(below_five, one_more, 0),
    "nested": lambda: lax.scan(outer, 1.0, None, length=2),
    "cond": lambda: lax.cond(True, looped, jnp.sin, 1.0),
    "remat": lambda: kept(1.0),
    "vmap": lambda: jax.vmap(looped)(jnp.arange(3.0)),
}


@pytest.mark.parametrize("name", EAGER)
def test_what_runs_eagerly_is_compiled_once(name: str) -> None:
    for _ in range(2):
        with tap.record() as rec:
            EAGER[name]()
    with tap.compiles() as log, tap.record() as again:
        EAGER[name]()
    assert [row.name for row in log] == [] and len(again.events) == len(rec.events) > 0


def test_another_select_gets_its_own_values() -> None:
    f, v = Counted(), jnp.ones(3)
    with tap.record(select=lambda leaves: leaves[0].sum()) as sums:
        f.call(v)
    with tap.record(select=lambda leaves: leaves[0].max()) as maxima:
        f.call(v)
    assert [float(e.value) for e in sums.events] == [3 * float(e.value) for e in maxima.events]
    assert f.traces == 2


def test_a_lens_that_sees_nothing_changes_nothing() -> None:
    f, v = Counted(), jnp.ones(3)
    bare = f.call.lower(v).as_text()
    with tap.record(where=lambda path: False) as rec:
        assert f.call.lower(v).as_text() == bare
        f.call(v)
    assert not rec.events and "none sent anything" in rec.report().notes[0]


def test_closed_by_an_exception() -> None:
    before, f = hooks(), Counted()
    with pytest.raises(KeyError), tap.record() as rec:
        f.call(jnp.ones(3))
        raise KeyError("boom")
    assert hooks() == before and len(rec.events) == 5


def test_an_abandoned_generator() -> None:
    before, f, v = hooks(), Counted(), jnp.ones(3)

    def watched() -> Any:
        with tap.record() as rec:
            f.call(v)
            yield rec
            f.call(v)

    generator = watched()
    rec = next(generator)
    del generator
    gc.collect()
    f.call(v)
    assert hooks() == before and len(rec.events) == 5


def test_lenses_closed_in_the_wrong_order() -> None:
    before, f, v = hooks(), Counted(), jnp.ones(3)
    first, second = tap.record(select="c"), tap.record()
    a, b = first.__enter__(), second.__enter__()
    f.call(v)
    first.__exit__(None, None, None)
    f.call(v)
    second.__exit__(None, None, None)
    f.call(v)
    assert (len(a.events), len(b.events)) == (5, 10) and hooks() == before


def test_a_program_that_gives_up_half_way() -> None:
    def check(i: Any) -> Any:
        if i == 7:
            raise ValueError("the solver gives up")
        return i

    def program(v: Any) -> Any:
        def body(c: Any, i: Any) -> Any:
            return c + jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.int32), i), None

        return lax.scan(body, v, jnp.arange(20))

    f = Counted()
    with pytest.raises(jax.errors.JaxRuntimeError, match="gives up"), tap.record() as rec:
        jax.block_until_ready(program(0))
    assert [event.step for event in rec.events] == list(range(7))
    assert rec.report().loops[0].unfinished == 1 and "cut off" in rec.report().notes[0]
    with tap.record() as rec:
        f.call(jnp.ones(3))
    assert len(rec.events) == 5 and rec.report().ok
    jax.effects_barrier()


def test_emergency_restore() -> None:
    before, f = hooks(), Counted()
    held = tap.record()
    held.__enter__()
    assert hooks() != before
    tap.emergency_restore()
    f.call(jnp.ones(3))
    assert hooks() == before and not jax.make_jaxpr(f.call)(jnp.ones(3)).effects
    assert tap.original_scan is jax.lax.scan


def run(code: str, *flags: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, **options
    )


def test_ctrl_c_in_a_long_loop() -> None:
    done = run(
        """
        import os, signal, threading, time
        import jax, jax.numpy as jnp, jaxtap as tap
        from jax.extend.core.primitives import scan_p

        def f(v):
            return jax.lax.fori_loop(0, 10**9, lambda i, c: jnp.sin(c) + 1.0, v)

        def press():
            while recorder is None or len(recorder.events) <= 10:
                time.sleep(0.1)
            # Python drops the exception where it hits a callback of the garbage collector; a user presses again.
            for _ in range(60):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.0)
            os._exit(9)

        recorder = None
        # Where JAX runs the program on another thread, nothing interrupts it, with or without a lens.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        start = jax.block_until_ready(jnp.ones(1000))
        threading.Thread(target=press, daemon=True).start()
        try:
            with tap.record(select=lambda leaves: leaves[1][0], sample_every=100) as recorder:
                jax.block_until_ready(f(start))
        except BaseException as error:
            print(type(error).__name__, len(recorder.events) > 10, vars(scan_p).get("bind"), flush=True)
        os._exit(0)
        """
    )
    assert done.returncode == 0, done
    kind, many, hook = done.stdout.split()
    assert (kind, many, hook) == ("KeyboardInterrupt", "True", "None")


def test_events_on_the_way_at_interpreter_exit() -> None:
    done = run(
        """
        import jax, jax.numpy as jnp, jaxtap as tap
        f = jax.jit(tap.verbose(lambda v: jax.lax.fori_loop(0, 20, lambda i, c: c + 1.0, v),
                                on_step=lambda event: print(event.step, flush=True)))
        f(1.0)
        """,
        "-W",
        "error",
    )
    assert done.returncode == 0 and done.stdout.split() == [str(i) for i in range(20)], done
