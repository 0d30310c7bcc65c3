"""Admission: a bounded number of utterances is spoken at once, the rest is refused at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from cosyvoice_stream.errors import EngineBusy

_RECENT: Final = 32
"""Ended utterances that the retry hint is computed from."""
_FIRST_GUESS_S: Final = 1.0
"""Duration of an utterance before any has ended."""
_RETRY_RANGE_S: Final = (0.1, 30.0)


class Slot:
    """The right to speak one utterance. Release it exactly when the work for it has ended."""

    __slots__ = ("_admission", "began")

    def __init__(self, admission: Admission, began: float) -> None:
        self._admission: Admission | None = admission
        self.began = began

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._admission is not None:
            self._admission._released(self)
            self._admission = None

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Admission:
    """Counts live utterances of the whole process. Used on the event loop only.

    Args:
        max_live: Utterances that may be spoken at the same time.
        clock: In seconds, never going back.
    """

    def __init__(self, max_live: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        if max_live < 1:
            raise ValueError("max_live must be at least 1")
        self.max_live = max_live
        self.admitted = 0
        """Utterances that got a slot since the start."""
        self.refused = 0
        """Utterances that got none."""
        self._clock = clock
        self._slots: set[Slot] = set()
        self._durations_s: deque[float] = deque(maxlen=_RECENT)

    @property
    def live(self) -> int:
        """Utterances that hold a slot."""
        return len(self._slots)

    def admit(self) -> Slot:
        """Take a slot.

        Raises:
            EngineBusy: None is free.
        """
        if len(self._slots) >= self.max_live:
            self.refused += 1
            raise EngineBusy(self.retry_after_s())
        self.admitted += 1
        slot = Slot(self, self._clock())
        self._slots.add(slot)
        return slot

    def retry_after_s(self) -> float:
        """When a slot should be free, if live utterances last as long as recent ones did.

        With n slots and a mean duration of d, one ends every d/n on average; an utterance that has
        lasted longer than d says that d is too small, so it counts with its age.
        """
        known = sum(self._durations_s) / len(self._durations_s) if self._durations_s else 0.0
        now = self._clock()
        oldest = max((now - slot.began for slot in self._slots), default=0.0)
        mean = max(known or _FIRST_GUESS_S, oldest / 2)
        low, high = _RETRY_RANGE_S
        return min(max(mean / self.max_live, low), high)

    def _released(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self._durations_s.append(self._clock() - slot.began)
