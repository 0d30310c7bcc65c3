"""Which work the device does next: pure bookkeeping over times that are passed in, no tensors.

Every utterance has a deadline, and the earliest one is served first::

    not heard yet    when it came + `Policy.first_audio_s`
    playing          when it was first heard + the audio it has been given since: its listener
                     runs out then
    background       the same, `Policy.patience_s` later

so newcomers go before all that have some lead, and an utterance that is about to run dry goes
before newcomers. A deadline does not move while an utterance waits: nobody starves. Others with the
same kind of work share the step, in the order of their deadlines.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Kind(Enum):
    """What a step does."""

    PREPARE = "prepare"
    """Load the state of the voice and take a slot."""
    DECODE = "decode"
    """Draw one speech token for each utterance."""
    SOUND = "sound"
    """Turn speech tokens into samples: flow and vocoder."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an utterance could do now."""

    prepare: bool = False
    decode: bool = False
    sound: Hashable | None = None
    """Utterances with equal values can share a step; None: nothing to sound."""

    @property
    def kind(self) -> Kind | None:
        """The work that brings its audio nearest."""
        if self.prepare:
            return Kind.PREPARE
        if self.sound is not None:
            return Kind.SOUND
        return Kind.DECODE if self.decode else None


NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class Step(Generic[Key]):
    """Work for the device: `keys` are distinct, the most urgent first."""

    kind: Kind
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """How utterances are weighed."""

    first_audio_s: float = 0.2
    """Seconds after which a newcomer should be heard."""
    patience_s: float = 30.0
    """Seconds that background work waits for work that is listened to."""
    comfort_s: float = 2.0
    """An utterance that is so far ahead of its listener joins no step of one that is not."""
    prepare_batch: int = 4
    decode_batch: int = 64
    sound_batch: int = 16


@dataclass
class _Entry:
    order: int
    background: bool
    came_s: float
    needs: Needs = NOTHING
    heard_s: float | None = None
    produced_s: float = 0.0

    def deadline(self, policy: Policy) -> float:
        late = policy.patience_s if self.background else 0.0
        if self.heard_s is None:
            return self.came_s + policy.first_audio_s + late
        return self.heard_s + self.produced_s + late


@dataclass
class Scheduler(Generic[Key]):
    """Picks the next step. One step runs at a time."""

    policy: Policy = field(default_factory=Policy)
    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def add(self, key: Key, now_s: float, *, background: bool = False) -> None:
        """Admit an utterance; it needs nothing yet."""
        self._entries[key] = _Entry(next(self._order), background, now_s)

    def remove(self, key: Key) -> None:
        """Forget an utterance; unknown keys are ignored."""
        self._entries.pop(key, None)

    def set_needs(self, key: Key, needs: Needs) -> None:
        """Say what an utterance could do; unknown keys are ignored."""
        if key in self._entries:
            self._entries[key].needs = needs

    def produced(self, key: Key, now_s: float, seconds: float) -> None:
        """Count audio that was given to a listener; unknown keys are ignored."""
        entry = self._entries.get(key)
        if entry is None or seconds <= 0:
            return
        if entry.heard_s is None or entry.heard_s + entry.produced_s < now_s:
            # First audio, or the listener had run dry and starts anew.
            entry.heard_s = now_s - entry.produced_s
        entry.produced_s += seconds

    def lead_s(self, key: Key, now_s: float) -> float:
        """Seconds of audio that the listener has not heard yet; 0 before the first."""
        entry = self._entries.get(key)
        if entry is None or entry.heard_s is None:
            return 0.0
        return max(0.0, entry.heard_s + entry.produced_s - now_s)

    def next(self, now_s: float) -> Step[Key] | None:
        """Choose a step; None if there is nothing to do."""
        waiting = self._ranked()
        if not waiting:
            return None
        deadline, _, first = waiting[0]
        kind = self._entries[first].needs.kind
        assert kind is not None
        horizon = now_s + self.policy.comfort_s
        if deadline > horizon:
            horizon = math.inf
        joining = [
            key
            for at, _, key in waiting
            if at <= horizon and self._can_join(self._entries[key].needs, kind, first)
        ]
        return Step(kind, tuple(joining[: self._most(kind)]))

    def _ranked(self) -> list[tuple[float, int, Key]]:
        """Utterances with work, the most urgent first."""
        ranked = [
            (entry.deadline(self.policy), entry.order, key)
            for key, entry in self._entries.items()
            if entry.needs.kind is not None
        ]
        return sorted(ranked, key=lambda item: item[:2])

    def _can_join(self, needs: Needs, kind: Kind, first: Key) -> bool:
        if kind is Kind.PREPARE:
            return needs.prepare
        if kind is Kind.SOUND:
            return needs.sound == self._entries[first].needs.sound
        return needs.decode

    def _most(self, kind: Kind) -> int:
        policy = self.policy
        sizes = {
            Kind.PREPARE: policy.prepare_batch,
            Kind.DECODE: policy.decode_batch,
            Kind.SOUND: policy.sound_batch,
        }
        return sizes[kind]
