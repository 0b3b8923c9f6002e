"""Several processes that run one program: each has its events, and what was written is there whatever dies."""

from __future__ import annotations

import collections
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jaxtap as tap

WORKER = Path(__file__).with_name("process.py")
# A deadlock shall end the test, not the machine.
TIMEOUT_S = 120


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def start(folder: Path, how: str) -> list[subprocess.Popen[str]]:
    """Two processes of two devices each."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, WORKER, str(port), str(index), folder, how],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for index in range(2)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit status and output of each."""
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return [(p.returncode, out, errors) for p, (out, errors) in zip(processes, outputs, strict=True)]


def counted(events: list[tap.TapEvent]) -> dict[tuple[int, int, Any], int]:
    """How many events there are of each process, device and shape."""
    return dict(collections.Counter((e.process, e.device, e.value[0].shape) for e in events))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("whole", {(0, 0, (8,)): 5, (1, 0, (8,)): 5}),
        ("shards", {(0, 0, (2,)): 5, (0, 1, (2,)): 5, (1, 2, (2,)): 5, (1, 3, (2,)): 5}),
        ("first", {(0, 0, (8,)): 5}),
    ],
)
def test_each_process_has_its_events(tmp_path: Path, how: str, expected: Any) -> None:
    for status, _, errors in ended(start(tmp_path, how)):
        assert status == 0, errors
    events = tap.read_jsonl(f"{tmp_path}/run-*.jsonl")
    assert counted(events) == expected
    assert [event.time for event in events] == sorted(event.time for event in events)
    for process, device, _ in expected:
        assert [e.step for e in events if (e.process, e.device) == (process, device)] == list(range(5))


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    one, other = start(tmp_path, "killed")
    try:
        other.wait(TIMEOUT_S)
        assert other.returncode == 9
    finally:
        for process in (one, other):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    with pytest.warns(tap.JaxtapWarning, match=r"of 2 files ended early: .*run-1\.jsonl \(process 1"):
        events = tap.read_jsonl([tmp_path / "run-0.jsonl", tmp_path / "run-1.jsonl"])
    assert [event.step for event in events if event.process == 1] == list(range(101))
    assert [event.step for event in events if event.process == 0][:90] == list(range(90))
