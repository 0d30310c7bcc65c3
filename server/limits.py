"""Admission: a bounded number of utterances is spoken at once; others wait a little or are refused.

::

    enter ──► free slot ─────────────────────────────────► Slot
         └──► queue (interactive first, then by arrival) ─┘
         └──► refused at once: the wait would be too long, or the queue is full

Who is refused hears of it at once, with a hint when to come again. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Final

from cosyvoice_stream.errors import EngineBusy

_RECENT: Final = 32
"""Ended utterances that the retry hint is computed from."""
_FIRST_GUESS_S: Final = 1.0
"""Duration of an utterance before any has ended."""
_RETRY_RANGE_S: Final = (0.1, 30.0)
_INTERACTIVE_SHARE: Final = 8
"""One slot in so many, and at least one of several, is not for background work."""


class Priority(IntEnum):
    """Who goes first."""

    INTERACTIVE = 0
    """Somebody listens."""
    BACKGROUND = 1
    """Nobody waits for it: prompts that are rendered ahead, files."""


@dataclass(frozen=True, slots=True)
class Caller:
    """For whom an utterance is spoken."""

    key: str | None = None
    """Short digest of the API key; None where keys are not set."""
    priority: Priority = Priority.INTERACTIVE


ANYBODY: Final = Caller()


class Slot:
    """The right to speak one utterance. Release it exactly when the work for it has ended."""

    __slots__ = ("_admission", "began", "caller")

    def __init__(self, admission: Admission, began: float, caller: Caller = ANYBODY) -> None:
        self._admission: Admission | None = admission
        self.began = began
        self.caller = caller

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._admission is not None:
            admission, self._admission = self._admission, None
            admission._released(self)

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


@dataclass(eq=False, slots=True)
class _Waiter:
    rank: tuple[int, int]
    caller: Caller
    slot: asyncio.Future[Slot]


class Admission:
    """Counts live utterances of the whole process.

    Args:
        max_live: Utterances that may be spoken at the same time.
        max_per_key: Of these, for one key.
        max_wait_s: Longest wait for a slot; 0 refuses whoever finds none.
        max_waiting: Longest queue.
        clock: In seconds, never going back.
    """

    def __init__(
        self,
        max_live: int,
        *,
        max_per_key: int | None = None,
        max_wait_s: float = 0.0,
        max_waiting: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_live < 1:
            raise ValueError("max_live must be at least 1")
        self.max_live = max_live
        self.max_per_key = max_per_key
        self.max_wait_s = max_wait_s
        self.max_waiting = max_waiting
        self.admitted = 0
        """Utterances that got a slot since the start."""
        self.refused = 0
        """Utterances that got none."""
        kept_free = max(1, max_live // _INTERACTIVE_SHARE) if max_live > 1 else 0
        self._max_background = max_live - kept_free
        self._clock = clock
        self._slots: set[Slot] = set()
        self._per_key: Counter[str] = Counter()
        self._background = 0
        self._waiters: list[_Waiter] = []
        self._arrivals = itertools.count()
        self._durations_s: deque[float] = deque(maxlen=_RECENT)

    @property
    def live(self) -> int:
        """Utterances that hold a slot."""
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """Utterances that wait for one."""
        return len(self._waiters)

    def admit(self, caller: Caller = ANYBODY) -> Slot:
        """Take a slot without waiting.

        Raises:
            EngineBusy: None is free.
        """
        if not self._fits(caller):
            raise self._refusal(caller)
        return self._grant(caller)

    async def enter(self, caller: Caller = ANYBODY) -> Slot:
        """Take a slot, after a wait that is bounded.

        Raises:
            EngineBusy: None will be free in time; nearly always raised at once.
        """
        rank = (caller.priority, next(self._arrivals))
        if self._fits(caller):  # those who wait fit nowhere, or they would not wait
            return self._grant(caller)
        before = sum(waiter.rank < rank for waiter in self._waiters)
        too_long = self._turnover_s() * (before + 1) >= self.max_wait_s
        if too_long or len(self._waiters) >= self.max_waiting:
            raise self._refusal(caller)
        waiter = _Waiter(rank, caller, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self.max_wait_s):
                await asyncio.wait([waiter.slot])
        except TimeoutError:
            if not waiter.slot.done():
                raise self._refusal(caller) from None
        except asyncio.CancelledError:
            if waiter.slot.done():
                waiter.slot.result().release()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return waiter.slot.result()

    def retry_after_s(self) -> float:
        """When a slot should be free for one more, if utterances last as recent ones did."""
        low, high = _RETRY_RANGE_S
        return min(max(self._turnover_s() * (len(self._waiters) + 1), low), high)

    def _turnover_s(self) -> float:
        """Seconds between two ends.

        With n slots and a mean duration of d, one ends every d/n on average; an utterance that has
        lasted longer than d says that d is too small, so it counts with its age.
        """
        known = sum(self._durations_s) / len(self._durations_s) if self._durations_s else 0.0
        now = self._clock()
        oldest = max((now - slot.began for slot in self._slots), default=0.0)
        return max(known or _FIRST_GUESS_S, oldest / 2) / self.max_live

    def _fits(self, caller: Caller) -> bool:
        if len(self._slots) >= self.max_live:
            return False
        if caller.priority is Priority.BACKGROUND and self._background >= self._max_background:
            return False
        return not self._key_is_full(caller)

    def _key_is_full(self, caller: Caller) -> bool:
        limit = self.max_per_key
        return limit is not None and caller.key is not None and self._per_key[caller.key] >= limit

    def _grant(self, caller: Caller) -> Slot:
        self.admitted += 1
        slot = Slot(self, self._clock(), caller)
        self._slots.add(slot)
        self._background += caller.priority is Priority.BACKGROUND
        if caller.key is not None:
            self._per_key[caller.key] += 1
        return slot

    def _refusal(self, caller: Caller) -> EngineBusy:
        self.refused += 1
        if self._key_is_full(caller):
            return EngineBusy(self.retry_after_s(), "all synthesis slots of this key are taken")
        return EngineBusy(self.retry_after_s())

    def _released(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self._durations_s.append(self._clock() - slot.began)
        self._background -= slot.caller.priority is Priority.BACKGROUND
        if slot.caller.key is not None:
            self._per_key[slot.caller.key] -= 1
            if not self._per_key[slot.caller.key]:
                del self._per_key[slot.caller.key]
        self._call_next()

    def _call_next(self) -> None:
        for waiter in sorted(self._waiters, key=lambda waiter: waiter.rank):
            if self._fits(waiter.caller):
                self._waiters.remove(waiter)
                waiter.slot.set_result(self._grant(waiter.caller))
