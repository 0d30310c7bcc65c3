"""Which utterance gets the next step: pure bookkeeping over times that are passed in.

An utterance that has not been heard yet goes before all that have; among those, the one whose
listener runs out of audio first. Background work runs when nobody waits, one step at a time. Since
a step is at most one clause of the model or one piece of audio, a newcomer's first clause goes
before another's fifth.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Urgency(IntEnum):
    """Classes of work, the most urgent first."""

    FIRST_AUDIO = 0
    PLAYING = 1
    BACKGROUND = 2


@dataclass
class _Entry:
    order: int
    background: bool
    ready: bool = False
    running: bool = False
    first_audio_s: float | None = None
    produced_s: float = 0.0

    def rank(self) -> tuple[int, float, int]:
        if self.background:
            return (Urgency.BACKGROUND, 0.0, self.order)
        if self.first_audio_s is None:
            return (Urgency.FIRST_AUDIO, 0.0, self.order)
        # A listener that started with the first audio runs dry at this time.
        return (Urgency.PLAYING, self.first_audio_s + self.produced_s, self.order)


@dataclass
class Scheduler(Generic[Key]):
    """Picks the next utterance. One step of an utterance runs at a time."""

    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def add(self, key: Key, *, background: bool = False) -> None:
        """Admit an utterance; it is not ready yet."""
        self._entries[key] = _Entry(next(self._order), background)

    def remove(self, key: Key) -> None:
        """Forget an utterance; unknown keys are ignored."""
        self._entries.pop(key, None)

    def set_ready(self, key: Key, ready: bool) -> None:
        """Say whether an utterance has a step to do; unknown keys are ignored."""
        if key in self._entries:
            self._entries[key].ready = ready

    def take(self) -> Key | None:
        """Choose the next step and mark it as running; None if nothing is ready."""
        in_background = any(e.running and e.background for e in self._entries.values())
        waiting = [
            (entry.rank(), key)
            for key, entry in self._entries.items()
            if entry.ready and not entry.running and not (entry.background and in_background)
        ]
        if not waiting:
            return None
        _, key = min(waiting, key=lambda item: item[0])
        self._entries[key].running = True
        return key

    def done(self, key: Key, now_s: float, produced_s: float, *, ready: bool) -> None:
        """End a step.

        Args:
            key: What `take` gave.
            now_s: Time on any clock that never goes back.
            produced_s: Seconds of audio that the step made.
            ready: Whether there is another step to do.
        """
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.running = False
        entry.ready = ready
        if produced_s > 0 and entry.first_audio_s is None:
            entry.first_audio_s = now_s
        entry.produced_s += produced_s
