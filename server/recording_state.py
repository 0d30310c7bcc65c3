"""Rules of a microphone recording inside a session: when its frames are welcome, and how many."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from cosyvoice_stream.errors import InvalidState, LimitExceeded, UnsupportedFormat
from cosyvoice_stream.server.protocol_events import (
    Event,
    RecordingAudio,
    RecordingBegun,
    RecordingCommitted,
    RecordingDropped,
)
from cosyvoice_stream.server.wire import VoiceBegin

SAMPLE_BYTES: Final = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""Encodings that a recording may have, and the bytes of one sample."""
_RATES_HZ: Final = (8000, 48_000)


class _State(Enum):
    NONE = auto()
    OPEN = auto()
    OVERRUN = auto()
    """Too long; the rest of it, which is on its way, is ignored."""
    CHECKING = auto()


class RecordingState:
    """At most one recording at a time. All methods return the events that follow.

    Args:
        max_s: Longest recording, in seconds.
    """

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._state = _State.NONE
        self._bytes_left = 0
        self._request_id: str | None = None

    def begin(self, message: VoiceBegin) -> list[Event]:
        """Open a recording.

        Raises:
            InvalidState: One is under way.
            UnsupportedFormat: No such encoding or rate.
        """
        if self._state in (_State.OPEN, _State.CHECKING):
            raise InvalidState("a recording is under way", how_to_fix="commit or cancel it first")
        sample_bytes = SAMPLE_BYTES.get(message.input.encoding)
        if sample_bytes is None:
            raise UnsupportedFormat(
                "input.encoding is not known", how_to_fix=f"use one of {', '.join(SAMPLE_BYTES)}"
            )
        rate = message.input.sample_rate
        low, high = _RATES_HZ
        if not low <= rate <= high:
            raise UnsupportedFormat(
                f"input.sample_rate = {rate} is not available",
                how_to_fix=f"use a rate from {low} to {high}",
            )
        self._state = _State.OPEN
        self._request_id = message.request_id
        self._bytes_left = int(self._max_s * rate) * sample_bytes
        return [RecordingBegun(message)]

    def receive(self, data: bytes) -> list[Event]:
        """Take a binary frame.

        Raises:
            InvalidState: No recording is open.
            LimitExceeded: It is too long; it is dropped.
        """
        if self._state in (_State.OVERRUN, _State.CHECKING):
            return []  # it was on its way
        if self._state is not _State.OPEN:
            raise InvalidState("no recording is open", how_to_fix="send voice.begin first")
        if len(data) > self._bytes_left:
            self._state = _State.OVERRUN
            self._bytes_left = 0
            error = LimitExceeded("seconds of recording", self._max_s)
            return [RecordingDropped(error, self._request_id)]
        self._bytes_left -= len(data)
        return [RecordingAudio(data)]

    def commit(self, request_id: str | None = None) -> list[Event]:
        """Complete the recording.

        Args:
            request_id: Of the message that asks for it; without one that of its beginning counts.

        Raises:
            InvalidState: None is open.
        """
        if self._state is not _State.OPEN:
            raise InvalidState("no recording is open", how_to_fix="send voice.begin first")
        self._state = _State.CHECKING
        return [RecordingCommitted(request_id or self._request_id)]

    def cancel(self) -> list[Event]:
        """Forget the recording; without one nothing happens.

        Raises:
            InvalidState: It is being checked.
        """
        if self._state is _State.CHECKING:
            raise InvalidState(
                "the recording is being checked", how_to_fix="delete the voice when it is ready"
            )
        dropped: list[Event] = [] if self._state is _State.NONE else [RecordingDropped()]
        self._state = _State.NONE
        return dropped

    def over(self) -> None:
        """The recording has been answered."""
        self._state = _State.NONE
