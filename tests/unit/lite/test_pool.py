"""The thread pool: order, removal, failure, closing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cosyvoice_stream.errors import EngineDied
from cosyvoice_stream.lite.pool import WorkPool

pytestmark = pytest.mark.unit

WAIT_S = 10.0


class Counting:
    """Does a number of steps, one at a time."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.done = threading.Event()
        self.inside = threading.Lock()
        self.failed: Exception | None = None

    def has_step(self) -> bool:
        return self.left > 0

    def step(self) -> float:
        assert self.inside.acquire(blocking=False), "two steps at once"
        self.left -= 1
        self.inside.release()
        if not self.left:
            self.done.set()
        return 0.1

    def fail(self, error: Exception) -> None:
        self.failed = error
        self.done.set()


class Gated(Counting):
    """Waits inside its step until it is let go."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.entered = threading.Event()
        self.go = threading.Event()

    def step(self) -> float:
        self.entered.set()
        assert self.go.wait(WAIT_S)
        return super().step()


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    made = WorkPool(2)
    yield made
    made.close()


def test_everything_is_done(pool: WorkPool) -> None:
    works = [Counting(1 + n % 7) for n in range(300)]
    for work in works:
        pool.add(work)
    assert all(work.done.wait(WAIT_S) for work in works)


def test_work_that_waits_is_woken(pool: WorkPool) -> None:
    work = Counting(0)
    pool.add(work)
    for _ in range(200):
        work.done.clear()
        work.left = 1
        pool.wake(work)
        assert work.done.wait(WAIT_S), "a wake-up was lost"


def test_removal_waits_for_the_running_step(pool: WorkPool) -> None:
    work = Gated()
    pool.add(work)
    assert work.entered.wait(WAIT_S)
    left = threading.Event()
    pool.remove(work, left.set)
    assert not left.is_set()
    assert len(pool) == 1
    work.go.set()
    assert left.wait(WAIT_S)
    assert len(pool) == 0
    assert work.left == 999_999, "a step was started after the removal"


def test_removal_of_what_does_not_run_is_immediate(pool: WorkPool) -> None:
    left = threading.Event()
    pool.remove(Counting(3), left.set)
    assert left.is_set()


def test_a_failing_step_ends_its_work_alone(pool: WorkPool) -> None:
    class Failing(Counting):
        def step(self) -> float:
            raise ArithmeticError("no")

    broken, sound = Failing(3), Counting(50)
    pool.add(broken)
    pool.add(sound)
    assert broken.done.wait(WAIT_S)
    assert isinstance(broken.failed, ArithmeticError)
    assert sound.done.wait(WAIT_S)
    assert sound.failed is None


def test_closing_fails_what_is_left_and_joins() -> None:
    pool = WorkPool(1)
    running, waiting = Gated(), Counting(5)
    pool.add(running)
    assert running.entered.wait(WAIT_S)
    pool.add(waiting)
    closer = threading.Thread(target=pool.close)
    closer.start()
    running.go.set()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    assert isinstance(running.failed, RuntimeError)
    assert isinstance(waiting.failed, RuntimeError)
    assert waiting.left == 5
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.add(Counting(1))


def test_a_thread_that_ends_fails_everything_and_leaves_nobody_waiting() -> None:
    class Deadly(Counting):
        def __init__(self) -> None:
            super().__init__(3)
            self.entered, self.go = threading.Event(), threading.Event()

        def step(self) -> float:
            self.entered.set()
            assert self.go.wait(WAIT_S)
            raise SystemExit

    pool = WorkPool(1)
    deadly, waiting, removed = Deadly(), Counting(5), threading.Event()
    pool.add(deadly)
    assert deadly.entered.wait(WAIT_S)
    pool.add(waiting)
    pool.remove(deadly, removed.set)
    deadly.go.set()
    assert removed.wait(WAIT_S)
    assert waiting.done.wait(WAIT_S)
    assert isinstance(waiting.failed, EngineDied)
    assert (waiting.left, len(pool)) == (5, 0)
    with pytest.raises(EngineDied):
        pool.add(Counting(1))
    left = threading.Event()
    pool.remove(waiting, left.set)
    assert left.is_set()
    pool.close()
