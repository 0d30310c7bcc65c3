"""Does somebody speak into the speech of the machine? First a suspicion, then a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cosyvoice_stream.streaming.vad import VadFrame


class Uplink(StrEnum):
    """What comes up from a listener."""

    SILENCE = "silence"
    MAYBE_SPEECH = "maybe_speech"
    """Speech has begun and may yet be a cough."""
    SPEECH = "speech"


@dataclass(frozen=True, slots=True)
class UplinkChange:
    """From here on it is something else."""

    state: Uplink
    at_sample: int
    """First sample of the speech, or the sample after its last one."""


class BargeIn:
    """Frames in, changes out.

    Speech that has been on for `min_speech_samples`, pauses not counted, is a verdict; what ends
    earlier was only a suspicion::

        speech    . . S S S S . . . . . S S S S S S S . . . .
        active    . . . . # # # # . . . . . # # # # # # # . .
        change            maybe   silence   maybe   speech  silence

    Args:
        min_speech_samples: Detected speech that makes a verdict.
    """

    def __init__(self, min_speech_samples: int) -> None:
        self._min_speech = min_speech_samples
        self.state = Uplink.SILENCE
        self._start: int | None = None
        self._end = 0
        self._speech = 0

    def push(self, frames: Iterable[VadFrame]) -> list[UplinkChange]:
        """Take frames in order; return what changes with them."""
        return [change for frame in frames if (change := self._judge(frame)) is not None]

    def _judge(self, frame: VadFrame) -> UplinkChange | None:
        if frame.speech:
            if self._start is None:
                self._start, self._speech = frame.start_sample, 0
            self._speech += frame.end_sample - frame.start_sample
            self._end = frame.end_sample
        if not frame.active:
            if not frame.speech:
                self._start = None  # too short a run to count
            return self._become(Uplink.SILENCE, self._end)
        if self.state is not Uplink.SPEECH:
            enough = self._speech >= self._min_speech
            start = frame.start_sample if self._start is None else self._start
            return self._become(Uplink.SPEECH if enough else Uplink.MAYBE_SPEECH, start)
        return None

    def _become(self, state: Uplink, at_sample: int) -> UplinkChange | None:
        if state is self.state:
            return None
        self.state = state
        return UplinkChange(state, at_sample)
