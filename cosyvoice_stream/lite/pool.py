"""A bounded pool of threads that runs the steps of many utterances in the scheduler's order."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from cosyvoice_stream.errors import EngineDied
from cosyvoice_stream.lite.scheduler import Scheduler

logger = logging.getLogger(__name__)

_NICENESS: Final = 5


class Work(Protocol):
    """Something that is done step by step. Only `step` runs on the pool's threads."""

    def __hash__(self) -> int: ...

    def step(self) -> float:
        """Do one step and return the seconds of audio that it made."""
        ...

    def has_step(self) -> bool:
        """Whether there is a step to do; called with the pool locked, must not block."""
        ...

    def fail(self, error: Exception) -> None:
        """A step raised; none follows. Must not raise."""
        ...


class WorkPool:
    """Runs `Work`; one step of the same work at a time.

    A step that raises an `Exception` ends its work. Anything else that ends a thread breaks the
    pool: all work fails with `EngineDied`, and none is taken any more.

    Args:
        threads: How many steps run at once.
    """

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._scheduler: Scheduler[Work] = Scheduler()
        self._leaving: dict[Work, Callable[[], None]] = {}
        self._running: set[Work] = set()
        self._closed = False
        self._broken = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"cosyvoice-lite-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._scheduler) + len(self._leaving)

    def add(self, work: Work, *, background: bool = False) -> None:
        """Admit work and start on it as soon as it has a step.

        Raises:
            EngineDied: The pool is broken.
            RuntimeError: The pool is closed.
        """
        with self._changed:
            if self._broken:
                raise EngineDied
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._scheduler.add(work, background=background)
            self._scheduler.set_ready(work, work.has_step())
            self._changed.notify()

    def wake(self, work: Work) -> None:
        """Look again whether the work has a step."""
        with self._changed:
            self._scheduler.set_ready(work, work.has_step())
            self._changed.notify()

    def remove(self, work: Work, left: Callable[[], None]) -> None:
        """Start no further step of the work.

        Args:
            work: What to give up; unknown work has left already.
            left: Called once no step of it runs any more, from a thread of the pool or right away.
        """
        with self._changed:
            self._scheduler.remove(work)
            if work in self._running:
                self._leaving[work] = left
                return
        left()

    def close(self) -> None:
        """Finish the steps that run, fail all work that is left, join the threads.

        Blocks for one step; safe to call twice.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            orphans = list(self._scheduler)
            for work in orphans:
                self._scheduler.remove(work)
        for work in orphans:
            work.fail(RuntimeError("the pool is closed"))

    def _serve(self) -> None:
        _step_back()
        work = None
        try:
            while (work := self._take()) is not None:
                self._do(work)
                work = None  # what is done is not kept until the next work comes
        except BaseException as error:
            self._break_down(work, error)

    def _do(self, work: Work) -> None:
        produced_s = 0.0
        failed = False
        try:
            produced_s = work.step()
        except Exception as error:
            failed = True
            logger.debug("a step failed: %s", type(error).__name__)
            work.fail(error)
        self._finish(work, produced_s, failed)

    def _break_down(self, work: Work | None, error: BaseException) -> None:
        """Fail everything: a thread ends that should not, in the middle of some work."""
        logger.error("a thread of the engine ended: %s", type(error).__name__)
        with self._changed:
            self._broken = self._closed = True
            lost = list(self._scheduler)
            for other in lost:
                self._scheduler.remove(other)
            left = None
            if work is not None:
                self._running.discard(work)
                left = self._leaving.pop(work, None)
            self._changed.notify_all()
        for other in lost:
            other.fail(EngineDied())
        if left is not None:
            left()

    def _take(self) -> Work | None:
        with self._changed:
            while not self._closed:
                work = self._scheduler.take()
                if work is not None:
                    self._running.add(work)
                    return work
                self._changed.wait()
            return None

    def _finish(self, work: Work, produced_s: float, failed: bool) -> None:
        with self._changed:
            self._running.discard(work)
            if failed:
                self._scheduler.remove(work)
            else:
                self._scheduler.done(work, time.monotonic(), produced_s, ready=work.has_step())
            left = self._leaving.pop(work, None)
            # Another thread may be waiting for exactly this work.
            self._changed.notify()
        if left is not None:
            left()


def _step_back() -> None:
    """Let the event loop have a core at once, where Linux lets one thread alone be nice.

    On two cores two of these threads leave it none, and what is due every 20 ms would wait for
    the end of a time slice.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
