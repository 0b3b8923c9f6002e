"""Programs that meet a fault, each in a process of its own: `python child.py NAME FOLDER ...`; 0 if all is well."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import primitives

import jaxtap as tap

STEPS = 200
PRIMITIVES = ("scan_p", "while_p", "cond_p", "remat_p")


def hooks() -> list[Any]:
    return [vars(getattr(primitives, name)).get("bind") for name in PRIMITIVES]


CLEAN = hooks()


@jax.jit
def run(x: Any) -> Any:
    """Some milliseconds of work."""
    return jax.lax.scan(lambda c, t: (jnp.sin(c) + t, c), x, jnp.arange(float(STEPS)))[0]


def bits() -> bytes:
    return bytes(memoryview(run(0.5)))


def nothing_left(bare: bytes) -> None:
    """The program is as it was, and another lens sees all of it."""
    assert hooks() == CLEAN
    assert not jax.make_jaxpr(run)(0.5).effects
    assert bits() == bare
    with tap.record(select="c") as rec:
        assert bits() == bare
    assert [event.step for event in rec.events] == list(range(STEPS)), len(rec.events)


def heard(process_says: str, **more: Any) -> None:
    print(json.dumps({"says": process_says, **more}), flush=True)


# --- Signals ----------------------------------------------------------------------------------------------------------


def terminate(*_: Any) -> None:
    """What a program makes of SIGTERM that wants to end in order."""
    raise SystemExit(143)


def interrupted(folder: str, tries: str) -> None:
    """Runs under one lens after the other, is interrupted, and looks around: again and again."""
    signal.signal(signal.SIGTERM, terminate)
    bare, writer = bits(), tap.JSONLWriter(Path(folder, "events.jsonl"))
    nothing_left(bare)
    for _ in range(int(tries)):
        rec, runs = tap.FlightRecorder(), 0
        try:
            heard("ready")
            while True:
                with tap.record(select="c", on_step=writer) as rec:
                    assert bits() == bare
                assert len(rec.events) == STEPS
                runs += 1
        except (KeyboardInterrupt, SystemExit) as error:
            signalled, kind = time.time(), type(error).__name__
        steps = [event.step for event in rec.events]
        lost = (steps[-1] + 1 if steps else 0) - len(set(steps))
        assert steps == sorted(set(steps)) and lost <= 1, steps
        jax.effects_barrier()
        nothing_left(bare)
        heard("interrupted", kind=kind, runs=runs, steps=len(steps), lost=lost, took=round(time.time() - signalled, 3))
    writer.close()
    heard("done", written=writer.written, dropped=writer.dropped)


def nursery(folder: str, tries: str) -> None:
    """Has one child after the other, before JAX has started, so that none of them has to import it."""
    for i in range(int(tries)):
        pid = os.fork()
        if pid == 0:
            endless(Path(folder, f"events-{i}.jsonl"))
        _, status = os.waitpid(pid, 0)
        heard("ended", status=os.waitstatus_to_exitcode(status))


def endless(path: Path) -> None:
    """Runs under a lens with a file until it is ended."""
    with tap.JSONLWriter(path) as writer:
        for runs in itertools.count(1):
            with tap.record(select="c", on_step=writer):
                bits()
            if runs == 1:
                heard("ready", pid=os.getpid())


# --- Disks and descriptors --------------------------------------------------------------------------------------------


def full_disk(folder: str, limit: str) -> None:
    """Writes more than there is room for; with a limit, no file may be longer than that."""
    if int(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    bare = bits()
    with tap.JSONLWriter(Path(folder, "events.jsonl")) as writer:
        while not writer.dropped:
            with tap.record(select=lambda leaves: (leaves[0], "x" * 500), on_step=writer) as rec:
                assert bits() == bare
            assert rec.report().ok and len(rec.events) == STEPS
        held = writer.written
        filler = Path(folder, "filler")
        if filler.exists():
            filler.unlink()
            with tap.record(select="c", on_step=writer):
                assert bits() == bare
    nothing_left(bare)
    heard("done", written=writer.written, dropped=writer.dropped, before_room=held)


def closed_stderr(folder: str, how: str) -> None:
    """Warns and alerts while no one can be told."""
    bare = bits()
    if how == "None":
        sys.stderr = None  # pyright: ignore[reportAttributeAccessIssue] - as where there is no console
    elif how == "closed":
        sys.stderr.close()
    elif how == "descriptor":
        os.close(2)
    elif how == "pipe":
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(read)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def fails(event: tap.TapEvent) -> None:
        raise ValueError(event.step)

    with (
        tap.JSONLWriter(Path(folder, "events.jsonl")) as writer,
        tap.record(alert=lambda e: "said", on_step=fails, on_ys=writer, select_ys="ys", capacity=3) as rec,
    ):
        assert bits() == bare
        # XLA may write to descriptor 2 whatever it is of.
        assert not (is_open(2) and os.path.samestat(os.fstat(2), writer.path.stat()))
    assert rec.report().failures == {"on_step": STEPS} and rec.dropped == 2 * STEPS - 3
    nothing_left(bare)
    heard("done", written=writer.written)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


# --- Failing functions ------------------------------------------------------------------------------------------------


class Wordless(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = (
    ValueError,
    MemoryError,
    RecursionError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    Wordless,
    StopIteration,
)


def failing(folder: str) -> None:
    """Each function that a user gives raises each kind of error, over four lanes."""
    lanes = jax.jit(jax.vmap(run))
    x = jnp.arange(4.0)
    bare = bytes(memoryview(lanes(x)))
    tried = 0
    for error, name in itertools.product(ERRORS, ("on_step", "alert", "on_ys", "alert_ys", "tap")):

        def fails(_: Any, error: Any = error) -> None:
            raise error()

        lens: dict[str, Any] = {"taps": [tap.on("sin", alert=fails)]} if name == "tap" else {name: fails}
        seen: list[Any] = []
        if name != "on_step":
            lens["on_step"] = seen.append
        if name.endswith("_ys"):
            lens["select_ys"] = "ys"
        with tap.record(**lens) as rec:
            assert bytes(memoryview(lanes(x))) == bare
        count = rec.report().failures.get("a tap's alert" if name == "tap" else name)
        assert count == 4 * STEPS, (error, name, rec.report().failures)
        assert len(seen) == (0 if name == "on_step" else len([e for e in rec.events if e.kind != "output"]))
        tried += 1
    nothing_left(bits())
    heard("done", tried=tried)


def bad_selects(folder: str) -> None:
    """A select that raises does so before the program runs; the next lens sees all."""
    bare, tried = bits(), 0
    for error in (ValueError, MemoryError, RecursionError, Wordless):

        def fails(_: Any, error: Any = error) -> None:
            raise error()

        with contextlib.suppress(tap.SelectError), tap.record(select=fails) as rec:
            bits()
            raise AssertionError("nothing was raised")
        assert len(rec.events) == 0
        nothing_left(bare)
        tried += 1
    heard("done", tried=tried)


# --- Fork and exit ----------------------------------------------------------------------------------------------------


def in_child(queue: Any, rec: Any, writer: Any) -> None:
    """What a child may do with what it has of its parent's."""
    writer(tap.TapEvent("child", 0, "of the child"))
    queue.put(len(rec.events))


def forked(folder: str, when: str) -> None:
    """Forks before, during or after a lens; the child ends as multiprocessing ends one, or as a program does."""
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
    bare = bits()
    with tap.JSONLWriter(Path(folder, "events.jsonl")) as writer:
        opened = contextlib.nullcontext() if when != "during" else tap.record(select="c", on_step=writer)
        if when == "after":
            with tap.record(select="c", on_step=writer) as rec:
                bits()
        with opened as within:
            rec = within or (rec if when == "after" else tap.FlightRecorder())
            if when == "during":
                bits()
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=in_child, args=(queue, rec, writer))
            child.start()
            assert queue.get(timeout=30) == (0 if when == "before" else STEPS)
            child.join(30)
            assert child.exitcode == 0, child.exitcode
            if (pid := os.fork()) == 0:
                sys.exit(7)
            # JAX's own threads are not in the child, which may crash for want of them on its way out, lens or not.
            assert wait_for(pid) in (7, -signal.SIGSEGV)
            if when == "during":
                bits()
    nothing_left(bare)
    heard("done", written=writer.written)


def wait_for(pid: int, seconds: float = 30.0) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child of a fork did not end")


def forked_first(folder: str) -> None:
    """Forks before JAX has started; parent and child each hold a lens."""
    pid = os.fork()
    path = Path(folder, f"events-{'child' if pid == 0 else 'parent'}.jsonl")
    with tap.JSONLWriter(path) as writer, tap.record(select="c", on_step=writer) as rec:
        bits()
    assert len(rec.events) == writer.written == STEPS
    if pid == 0:
        sys.exit(7)
    assert wait_for(pid, 60.0) == 7
    heard("done", written=writer.written)


def seen(queue: Any, given: list[tap.TapEvent]) -> None:
    with tap.record(select="c") as rec:
        bits()
    queue.put((list(rec.events) == [] or [e.step for e in rec.events], given))


def spawned(folder: str) -> None:
    """Events cross to a spawned process, which holds a lens of its own, during one of its parent's."""
    with tap.record(select="c") as rec:
        bits()
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        child = context.Process(target=seen, args=(queue, list(rec.events)[:3]))
        child.start()
        steps, back = queue.get(timeout=60)
        child.join(60)
        bits()
    assert child.exitcode == 0 and steps == list(range(STEPS)) and back == list(rec.events)[:3]
    assert len(rec.events) == 2 * STEPS
    heard("done")


def exits(folder: str, how: str, steps: str) -> None:
    """Ends while its events are under way."""
    writer = tap.JSONLWriter(Path(folder, "events.jsonl"))
    g = jax.jit(tap.verbose(lambda v: jax.lax.fori_loop(0, int(steps), lambda i, c: jnp.sin(c) + i, v), on_step=writer))
    if how == "thread":
        thread = threading.Thread(target=lambda: g(1.0))
        thread.start()
    else:
        g(1.0)
    if how == "error":
        raise SystemExit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
