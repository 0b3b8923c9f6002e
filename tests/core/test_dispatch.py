"""Programs under a watch are called as without one, and waited for all the same."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap as tap
from jaxtap import _dispatch
from jaxtap.internal import Plan, Selection, View, Watch, mark_for

SIZE, CALLS = 200, 7


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests have eight devices, on which only programs on several need their effects."""
    monkeypatch.setattr(_dispatch, "_is_alone", lambda: True)


def watch() -> Any:
    view = View(select=None, marks=((("*",), Selection()),), hooks=(("test", ()),))
    return Watch(Plan("watch", view, lambda event: {"value": event.value}, "marks"))


def shown(x: Any) -> Any:
    return mark_for("test", "seen", x)


@jax.jit
def flat(x: Any) -> Any:
    return x + shown(jnp.tanh(x).sum())


@jax.jit
def called(x: Any) -> Any:
    return jax.jit(lambda y: shown(jnp.tanh(y).sum()))(x) + x


@jax.jit
def looped(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda _, y: jnp.tanh(y) + shown(y[0, 0]), x)


@jax.jit
def slow(x: Any) -> Any:
    return lax.fori_loop(0, 60, lambda _, y: jnp.tanh(x @ y), x)


def calls_of_python(program: Any, *args: Any) -> list[str]:
    """The Python functions that run while a program is called."""
    found: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        program(*args)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize(("program", "rows"), [(flat, 1), (called, 1), (looped, 4)])
def test_a_watched_program_is_called_without_python(program: Any, rows: int) -> None:
    x = jnp.ones((3, 3))
    program(x)
    with watch() as seen:
        for _ in range(3):
            program(x)
        assert "cache_miss" not in calls_of_python(program, x)
    assert len(seen.rows) == 4 * rows
    program(x)
    assert "cache_miss" not in calls_of_python(program, x) and len(seen.rows) == 4 * rows


def test_a_program_with_an_effect_of_its_own_keeps_it() -> None:
    """`jax.effects_barrier()` waits for what the user's own callback does."""
    got: list[int] = []

    @jax.jit
    def program(x: Any) -> Any:
        def body(_: Any, y: Any) -> Any:
            jax.debug.callback(lambda _: got.append(1), y[0, 0])
            return jnp.tanh(y) + shown(y[0, 0])

        return lax.fori_loop(0, 4, body, x)

    with watch() as seen:
        for _ in range(3):
            program(jnp.ones((3, 3)))
        assert "cache_miss" in calls_of_python(program, jnp.ones((3, 3)))
        jax.effects_barrier()
        assert len(got) == 16
    assert len(seen.rows) == 16


@pytest.mark.parametrize(("program", "rows"), [(flat, 1), (called, 1), (looped, 4)])
def test_what_is_under_way_is_waited_for(program: Any, rows: int) -> None:
    """No one holds a result, and when the block ends the programs have not begun."""
    x = jnp.ones((SIZE, SIZE)) / SIZE
    with watch():
        program(slow(x))
    for _ in range(5):
        with watch() as seen:
            late = slow(x)
            for _ in range(CALLS):
                program(late)
            del late
        assert len(seen.rows) == CALLS * rows
        with watch() as seen:
            program(slow(x))
            seen.wait()
            assert len(seen.rows) == rows


def test_checks_find_nothing_odd() -> None:
    with jax.enable_checks(True), watch() as seen:
        jax.jit(lambda x: x * 2.0 + shown(x))(1.0)
    assert len(seen.rows) == 1


def test_results_that_no_one_uses_are_no_reason_to_see_less() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return shown(x * 2.0)

    with watch() as seen:
        inner(1.0)
        jax.jit(lambda x: (inner(x), x)[1])(1.0)
        lax.scan(lambda c, _: (inner(c), c)[::-1], 1.0, length=3)
    assert len(seen.rows) == 5


def test_a_program_that_ends_with_something_under_way(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_dispatch import *\n"
        "seen = watch()\n"
        "seen.__enter__()\n"
        "late = slow(jnp.ones((SIZE, SIZE)) / SIZE)\n"
        "for _ in range(CALLS): looped(late)\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script), str(Path(__file__).parent)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


def test_a_watch_while_python_ends(tmp_path: Path) -> None:
    """No thread begins then."""
    script = tmp_path / "late.py"
    script.write_text(
        "import atexit, sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_dispatch import *\n"
        "def late():\n"
        "    with watch() as seen: looped(jnp.ones((SIZE, SIZE)) / SIZE)\n"
        "    print(len(seen.rows))\n"
        "atexit.register(late)\n"
    )
    command = [sys.executable, "-W", "error", str(script), str(Path(__file__).parent)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("4\n", "")


def test_with_several_devices_effects_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on several are not in one order with those on one."""
    monkeypatch.setattr(_dispatch, "_is_alone", lambda: False)
    with watch() as seen:
        program = jax.jit(lambda x: x * 3.0 + shown(x))
        for _ in range(3):
            program(1.0)
        assert "cache_miss" in calls_of_python(program, 1.0)
    assert len(seen.rows) == 4


def forbidding() -> list[Any]:
    """Ways in which a user's program may be run, which what waits for it must not mind."""
    return [
        lambda: jax.disable_jit(),
        lambda: jax.transfer_guard("disallow_explicit"),
        lambda: jax.debug_nans(True),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.default_device(jax.devices()[-1]),
    ]


@pytest.mark.parametrize("way", range(len(forbidding())))
def test_however_the_program_is_run(way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _dispatch._behind.cache_clear()
    monkeypatch.setattr(_dispatch.programs, "are_there", True)
    x = jnp.ones((3, 3))
    seen = watch()
    with forbidding()[way](), warnings.catch_warnings():
        warnings.simplefilter("error")
        with seen:
            flat(x)
    assert len(seen.rows) == 1


def test_a_log_of_compiles_has_only_the_program_s_own() -> None:
    _dispatch._behind.cache_clear()
    with tap.compiles() as log, watch():
        jax.jit(lambda x: x * 7.0 + shown(x))(1.0)
    assert [row.name for row in log if row.name == "neg"] == [] and log.of("<lambda>")
