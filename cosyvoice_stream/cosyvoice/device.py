"""The one thread that uses the device: it asks the scheduler, does the step, and waits.

It waits on a condition, without a time limit: everything that could give it work notifies it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from cosyvoice_stream.cosyvoice.scheduler import Kind, Policy, Scheduler, Step
from cosyvoice_stream.cosyvoice.utterance import Utterance
from cosyvoice_stream.cosyvoice.worker import Worker
from cosyvoice_stream.errors import EngineBusy, EngineDied

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_JOBS: Final = 64
JOB_PATIENCE_S: Final = 0.5
"""A job goes before steps once it has waited so long."""


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.came_s = time.monotonic()
        self.future: Future[Any] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.call())
        except BaseException as error:
            self.future.set_exception(error)


class DeviceLoop:
    """Runs utterances and jobs until it is closed.

    Args:
        worker: Does the steps; used by the thread of this loop only.
        policy: For the scheduler.
    """

    def __init__(self, worker: Worker, policy: Policy | None = None) -> None:
        self._worker = worker
        self._changed = threading.Condition()
        self._scheduler: Scheduler[Utterance] = Scheduler(policy or Policy())
        self._jobs: deque[_Job] = deque()
        self._leaving: list[tuple[Utterance, Callable[[], None]]] = []
        self._running: tuple[Utterance, ...] = ()
        """Those of the step that is being done: only the thread may look at them."""
        self._closed = False
        self._broken = False
        self._thread = threading.Thread(target=self._serve, name="cosyvoice-device", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._scheduler) + len(self._leaving)

    def add(self, utterance: Utterance, *, background: bool = False) -> None:
        """Admit an utterance.

        Raises:
            EngineDied: The thread ended where it should not.
            RuntimeError: The loop is closed.
        """
        with self._changed:
            self._check_open()
            self._scheduler.add(utterance, time.monotonic(), background=background)
            self._look(utterance, time.monotonic())

    def wake(self, utterance: Utterance) -> None:
        """Look again at what an utterance could do."""
        with self._changed:
            if utterance not in self._running:
                self._look(utterance, time.monotonic())

    def remove(self, utterance: Utterance, left: Callable[[], None]) -> None:
        """Do nothing more for an utterance and free what it holds.

        Args:
            utterance: What to give up.
            left: Called on the thread once everything is free, after at most one step.
        """
        with self._changed:
            self._scheduler.remove(utterance)
            if not self._closed:
                self._leaving.append((utterance, left))
                self._changed.notify()
                return
        left()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run something on the thread, when nothing urgent is waiting.

        Raises:
            EngineBusy: Too much waits already.
            EngineDied: The thread ended where it should not.
            RuntimeError: The loop is closed.
        """
        job = _Job(call)
        with self._changed:
            self._check_open()
            if len(self._jobs) >= MAX_JOBS:
                raise EngineBusy(1.0, "too many voices are being prepared")
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Fail what runs, cancel jobs, join the thread. Blocks for one step; safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _check_open(self) -> None:
        if self._broken:
            raise EngineDied
        if self._closed:
            raise RuntimeError("the device loop is closed")

    def _look(self, utterance: Utterance, now: float) -> None:
        lead = self._scheduler.lead_s(utterance, now)
        self._scheduler.set_needs(utterance, utterance.needs(lead))
        self._changed.notify()

    def _serve(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            logger.error("the device thread ended: %s", type(error).__name__)
            with self._changed:
                self._broken = self._closed = True
                self._running = ()
        self._end()

    def _loop(self) -> None:
        while True:
            with self._changed:
                leaving, self._leaving = self._leaving, []
                step, job, leads = None, None, []
                if not leaving:
                    if self._closed:
                        return
                    now = time.monotonic()
                    step = self._scheduler.next(now)
                    if self._jobs and (step is None or now - self._jobs[0].came_s > JOB_PATIENCE_S):
                        step, job = None, self._jobs.popleft()
                    if step is not None:
                        leads = [self._scheduler.lead_s(key, now) for key in step.keys]
                        self._running = step.keys
                    elif job is None:
                        self._changed.wait()
                        continue
            for utterance, left in leaving:
                self._worker.release(utterance)
                left()
            if job is not None:
                job.run()
            if step is not None:
                self._do(step, leads)

    def _do(self, step: Step[Utterance], leads: list[float]) -> None:
        made = self._worker.do(step.kind, step.keys, leads)
        now = time.monotonic()
        with self._changed:
            self._running = ()
            for utterance, seconds in zip(step.keys, made, strict=True):
                if step.kind is Kind.SOUND:
                    self._scheduler.produced(utterance, now, seconds)
                self._look(utterance, now)

    def _end(self) -> None:
        with self._changed:
            orphans, jobs = list(self._scheduler), list(self._jobs)
            for utterance in orphans:
                self._scheduler.remove(utterance)
            self._jobs.clear()
            leaving, self._leaving = self._leaving, []
        for job in jobs:
            job.future.cancel()
        for utterance in orphans:
            self._worker.release(utterance)
            utterance.fail(
                EngineDied() if self._broken else RuntimeError("the device loop is closed")
            )
        for utterance, left in leaving:
            self._worker.release(utterance)
            left()
