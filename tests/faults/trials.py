"""Faults, how each is tried, and what is lost by it. A trial raises AssertionError where more is lost than may be."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtap as tap

CHILD = Path(__file__).with_name("child.py")
STEPS = 200
LIMIT_S = 240.0
# What JSONLWriter promises, and what a busy machine may take on top to let it write.
PROMISED_S, SLACK_S = 0.2, 2.0


class NotPossible(Exception):
    """This machine cannot have that fault."""


@dataclasses.dataclass
class Outcome:
    """What came of a trial.

    Attributes:
      tried: how often the fault was met.
      lost: what was lost by it, in words.
      figures: measurements.
    """

    tried: int
    lost: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)


class Child:
    """One run of a program of child.py."""

    def __init__(self, name: str, *arguments: object, **options: Any) -> None:
        command = [sys.executable, "-W", "error", str(CHILD), name, *map(str, arguments)]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the child has ended
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment | {"PYTHONFAULTHANDLER": "1"},
            **options,
        )
        self._said = b""

    def has_said(self, seconds: float) -> bool:
        """Whether there is a line to hear, or none will come, after waiting so long at most."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return False
            found = os.read(self.process.stdout.fileno(), 4096)
            self._said += found
            if not found:
                return True
        return True

    def heard(self, says: str) -> dict[str, Any]:
        """The next line of the child, which says this."""
        if not self.has_said(LIMIT_S) or not self._said:
            raise AssertionError(self.ended())
        line, _, self._said = self._said.partition(b"\n")
        found = json.loads(line)
        assert found["says"] == says, found
        return found

    def ended(self, status: int | None = None) -> str:
        """Wait for its end; what it has said on stderr."""
        hangs = False
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            hangs = True
            self.process.send_signal(signal.SIGABRT)  # it tells where it is
            self.process.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")
        self._errors.close()
        if self.process.stdout is not None:
            self.process.stdout.close()
        assert not hangs, f"the child hangs: {errors}"
        assert status is None or self.process.returncode == status, (self.process.returncode, errors)
        return errors


def done(name: str, *arguments: object, **options: Any) -> dict[str, Any]:
    """What a child says that ends well."""
    child = Child(name, *arguments, **options)
    said = child.heard("done")
    child.ended(0)
    return said


# Which warnings are caught is a matter of the whole process.
_reading = threading.Lock()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def events_in(path: Path, torn: int = 0) -> list[tap.TapEvent]:
    """The events of a file of which at most so many lines are torn."""
    with _reading, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        events = tap.read_jsonl(path)
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    markers = sum(line.startswith((b'{"begun"', b'{"ended"')) for line in lines)
    assert len(lines) - markers - len(events) <= torn, [str(w.message) for w in caught]
    return events


def missing(events: list[tap.TapEvent]) -> int:
    """How many steps are missing up to the last one of each execution; none of them is there twice."""
    found: list[list[int]] = [[]]
    for event in events:
        if found[-1] and event.step <= found[-1][-1]:
            found.append([])
        found[-1].append(event.step)
    return sum(steps[-1] + 1 - len(steps) for steps in found if steps)


# --- Signals ----------------------------------------------------------------------------------------------------------


def interrupts(number: signal.Signals, kind: str) -> Callable[[int, random.Random], Outcome]:
    def trial(count: int, moments: random.Random) -> Outcome:
        with folder() as path:
            child, cut, lost, again = Child("interrupted", path, count), 0, 0, 0
            for _ in range(count):
                child.heard("ready")
                time.sleep(moments.random() * 0.2)
                again += press_until_heard(child, number)
                said = child.heard("interrupted")
                assert said["kind"] == kind
                lost += said["lost"]
                cut += said["steps"] not in (0, STEPS)
            said = child.heard("done")
            child.ended(0)
            events = events_in(path / "events.jsonl")
            assert said["dropped"] == 0 and len(events) == said["written"] and missing(events) == lost
        words = f"{lost or 'no'} event{'s' * (lost != 1)}, of those being received just then; nothing later"
        return Outcome(count, words, {"in the middle of a loop": cut, "sent again": again, "events lost": lost})

    return trial


def press_until_heard(child: Child, number: signal.Signals) -> int:
    """Send a signal; again if Python has dropped the exception where nothing can catch it, as in a finalizer."""
    for again in range(3):
        child.process.send_signal(number)
        if child.has_said(30.0):
            return again
    child.process.send_signal(signal.SIGABRT)
    raise AssertionError(f"the child does not heed a signal: {child.ended()}")


def killed(number: signal.Signals) -> Callable[[int, random.Random], Outcome]:
    def trial(count: int, moments: random.Random) -> Outcome:
        ages: list[float] = []
        torn = 0
        with folder() as path:
            child = Child("nursery", path, count)
            for i in range(count):
                pid = child.heard("ready")["pid"]
                time.sleep(0.3 + moments.random() * 0.3)
                at = time.time()
                os.kill(pid, number)
                assert child.heard("ended")["status"] == -number
                file = path / f"events-{i}.jsonl"
                events = events_in(file, torn=1)
                torn += not file.read_bytes().endswith(b"\n")
                assert missing(events) == 0
                ages.append(at - max(event.time for event in events))
            child.ended(0)
        assert max(ages) < PROMISED_S + SLACK_S, ages
        lost = f"events of the last {max(ages):.2f} s at most; every line but the last was whole"
        return Outcome(count, lost, {"newest event was old, s": round(max(ages), 3), "torn last lines": torn})

    return trial


def exits(count: int, moments: random.Random) -> Outcome:
    ways = {"end": 0, "error": 3, "thread": 0}
    tried = 0
    for _, (how, status) in zip(range(count), itertools.cycle(ways.items()), strict=False):
        steps = moments.randrange(100, 5000)
        with folder() as path:
            errors = Child("exits", path, how, steps).ended(status)
            assert errors == "", errors
            found = [event.step for event in events_in(path / "events.jsonl")]
            assert found == list(range(steps)), (how, steps, len(found))
            assert b'{"ended"' in (path / "events.jsonl").read_bytes()
        tried += 1
    return Outcome(tried, "nothing: the file has every event, and is ended")


# --- Disks and descriptors --------------------------------------------------------------------------------------------


def file_too_large(count: int, moments: random.Random) -> Outcome:
    kept = 0
    for _ in range(count):
        with folder() as path:
            said = done("full_disk", path, moments.randrange(2000, 200_000))
            assert len(events_in(path / "events.jsonl", torn=1)) == said["written"] and said["dropped"] > 0
            kept += said["written"]
    return Outcome(count, "what did not fit, counted in `dropped`, with one warning; all before it is there")


def full_tmpfs(count: int, moments: random.Random) -> Outcome:
    for _ in range(count):
        with folder() as path, mounted(path):
            (path / "filler").write_bytes(b"x" * (moments.randrange(400, 900) << 10))
            said = done("full_disk", path, 0)
            events = events_in(path / "events.jsonl", torn=1)
            assert len(events) == said["written"] >= said["before_room"] + STEPS
    return Outcome(
        count, "what did not fit, counted in `dropped`, with one warning; with room again, events are written again"
    )


@contextlib.contextmanager
def mounted(path: Path) -> Iterator[None]:
    """A disk of 1 MiB."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], capture_output=True, text=True)
    if made.returncode:
        raise NotPossible(f"mounting is not allowed here ({made.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def no_stderr(count: int, moments: random.Random) -> Outcome:
    ways = ("None", "closed", "descriptor", "pipe")
    for _, how in zip(range(count), itertools.cycle(ways), strict=False):
        with folder() as path:
            assert done("closed_stderr", path, how)["written"] == STEPS
            assert len(events_in(path / "events.jsonl")) == STEPS
    return Outcome(count, "the alert lines and warnings that no one could be told; stdout stays the program's")


# --- The program's own doing ------------------------------------------------------------------------------------------


def failing(count: int, moments: random.Random) -> Outcome:
    with folder() as path:
        tried = done("failing", path)["tried"]
    return Outcome(tried, "nothing but what the function would have done; each failure is counted, the first told")


def bad_selects(count: int, moments: random.Random) -> Outcome:
    with folder() as path:
        tried = done("bad_selects", path)["tried"]
    return Outcome(tried, "nothing: SelectError comes before the program starts")


def forks(count: int, moments: random.Random) -> Outcome:
    whens = {"during": 2 * STEPS, "after": STEPS, "before": 0}
    for _, (when, steps) in zip(range(count), itertools.cycle(whens.items()), strict=False):
        with folder() as path:
            said = done("forked", path, when)
            events = events_in(path / "events.jsonl")
            own = [event for event in events if event.path != "child"]
            assert len(own) == said["written"] == steps and len(events) == steps + 1 and missing(own) == 0
    with folder() as path:
        done("forked_first", path)
        for who in ("parent", "child"):
            assert len(events_in(path / f"events-{who}.jsonl")) == STEPS
    return Outcome(count + 1, "nothing: the parent's events are in the file once, the child ends and adds its own")


def spawns(count: int, moments: random.Random) -> Outcome:
    for _ in range(count):
        with folder() as path:
            done("spawned", path)
    return Outcome(count, "nothing: events cross to the spawned process, which holds a lens of its own")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault, and how it is tried.

    Attributes:
      what: the fault, in words.
      trial: tries it some times at moments of a random generator.
      times: how often in the session.
      quick: how often in the normal run; 0 for not at all.
    """

    what: str
    trial: Callable[[int, random.Random], Outcome]
    times: int
    quick: int = 1


FAULTS = {
    "interrupt": Fault("SIGINT at a random moment", interrupts(signal.SIGINT, "KeyboardInterrupt"), 100, 3),
    "terminate": Fault("SIGTERM, made SystemExit by the program", interrupts(signal.SIGTERM, "SystemExit"), 50, 0),
    "terminated": Fault("SIGTERM that ends the process", killed(signal.SIGTERM), 50, 0),
    "killed": Fault("kill -9", killed(signal.SIGKILL), 50),
    "exit": Fault("interpreter exit with events under way: at the end, by SystemExit, in a thread", exits, 12),
    "large": Fault("a file at its size limit (RLIMIT_FSIZE)", file_too_large, 10),
    "full": Fault("a full disk (tmpfs of 1 MiB) with room again later", full_tmpfs, 10, 0),
    "stderr": Fault("stderr closed, None, a broken pipe, its descriptor closed", no_stderr, 8),
    "failing": Fault(
        "on_step, alert, on_ys, alert_ys and a tap's alert that raise, 8 kinds of error, under -W error", failing, 1
    ),
    "select": Fault("a select that raises, with 4 kinds of error", bad_selects, 1, 0),
    "fork": Fault("fork before, during and after a lens", forks, 9),
    "spawn": Fault("a process spawned during a lens", spawns, 3, 0),
}  # fmt: skip
