"""The thread on which user functions run: what may wait for more waits, but not for long, and for no one who asks."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from jaxtap._router import Router

LONG_S = 60.0


def test_a_job_that_may_wait_runs_when_its_time_is_up() -> None:
    router, ran = Router(), threading.Event()
    begun = time.monotonic()
    router.put_within(ran.set, 0.05)
    assert not ran.is_set()
    assert ran.wait(LONG_S) and time.monotonic() - begun >= 0.05


def test_one_who_waits_does_not_wait_for_that() -> None:
    router, ran = Router(), list[int]()
    router.put_within(lambda: ran.append(1), LONG_S)
    router.put(lambda: ran.append(0))
    router.drain()
    assert ran == [0, 1]
    router.put_within(lambda: ran.append(2), LONG_S)
    assert router.catch_up() and ran == [0, 1, 2]


def test_a_job_that_may_not_wait_does_not_wait_for_one_that_may() -> None:
    router, ran = Router(), threading.Event()
    router.put_within(lambda: None, LONG_S)
    router.put_within(ran.set, 0.0)
    assert ran.wait(LONG_S / 2)


def test_the_one_that_is_due_first_comes_first() -> None:
    router, done, ran = Router(), threading.Event(), list[str]()
    router.put_within(lambda: (ran.append("late"), done.set()), 0.2)
    router.put_within(lambda: ran.append("soon"), 0.02)
    assert done.wait(LONG_S) and ran == ["soon", "late"]


class Counted(queue.SimpleQueue[Any]):
    """A queue that counts what was put into it, each of which wakes the thread."""

    puts = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self.puts += 1
        super().put(item, block, timeout)


def test_those_that_follow_each_other_hardly_wake_anyone() -> None:
    router, over = Router(), list[float]()
    router._jobs = jobs = Counted()

    def put() -> None:
        due = time.monotonic() + 0.1
        router.put_within(lambda: over.append(time.monotonic() - due), 0.1)

    for _ in range(100):
        put()
        time.sleep(0.005)
    assert jobs.puts <= 5
    router.drain()
    # All were run, most of them in time, on a machine that does other things besides.
    assert len(over) == 100 and sorted(over)[50] < 0.05


def test_one_that_may_wait_less_is_not_kept_by_those_that_may_wait_longer() -> None:
    router, ran = Router(), threading.Event()
    router.put_within(lambda: None, LONG_S)
    router.put_within(ran.set, 0.01)
    assert ran.wait(LONG_S / 2)
    again = threading.Event()
    router.put_within(again.set, 0.01)
    assert again.wait(LONG_S / 2)


def test_one_that_may_wait_is_not_kept_by_many_that_may_not() -> None:
    router, ran, over = Router(), threading.Event(), threading.Event()

    def again() -> None:
        if not over.is_set():
            router.put(again)

    router.put(again)
    router.put(again)
    router.put_within(ran.set, 0.01)
    assert ran.wait(LONG_S / 2)
    over.set()
    router.drain()
