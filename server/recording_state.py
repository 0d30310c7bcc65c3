"""Rules of the microphone inside a session: what its frames are for, and how many are welcome."""

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
    UplinkAudio,
    UplinkBegun,
    UplinkEnded,
)
from cosyvoice_stream.server.wire import RecordingFormat, VadStart, VoiceBegin
from cosyvoice_stream.streaming.vad import RATES_HZ

SAMPLE_BYTES: Final = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""Encodings that a recording may have, and the bytes of one sample."""
_RATES_HZ: Final = (8000, 48_000)
_MAX_UPLINK_BYTES: Final = 64 * 1024
"""Of one frame: it is judged at once, on the event loop, in a few milliseconds."""


class _State(Enum):
    NONE = auto()
    OPEN = auto()
    OVERRUN = auto()
    """Too long; the rest of it, which is on its way, is ignored."""
    CHECKING = auto()
    LISTENING = auto()
    """Not a recording: the stream is watched for speech."""


class RecordingState:
    """One use of the microphone at a time. All methods return the events that follow.

    Args:
        max_s: Longest recording, in seconds.
    """

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._state = _State.NONE
        self._from_track = False
        """Whether the client has named no form for its frames, so a track may stand in."""
        self._bytes_left = 0
        self._request_id: str | None = None

    def begin(self, message: VoiceBegin) -> list[Event]:
        """Open a recording.

        Raises:
            InvalidState: One is under way.
            UnsupportedFormat: No such encoding or rate.
        """
        self._check_free()
        sample_bytes = _check_encoding(message.input)
        rate = message.input.sample_rate
        low, high = _RATES_HZ
        if not low <= rate <= high:
            raise _no_such_rate(rate, f"a rate from {low} to {high}")
        self._state = _State.OPEN
        self._from_track = "input" not in message.model_fields_set
        self._request_id = message.request_id
        self._bytes_left = int(self._max_s * rate) * sample_bytes
        return [RecordingBegun(message)]

    def receive(self, data: bytes) -> list[Event]:
        """Take a binary frame.

        Raises:
            InvalidState: No recording is open.
            LimitExceeded: The recording is too long, or the frame; it is dropped.
        """
        if self._state is _State.LISTENING:
            if len(data) > _MAX_UPLINK_BYTES:
                raise LimitExceeded("bytes of one microphone frame", _MAX_UPLINK_BYTES, len(data))
            return [UplinkAudio(data)]
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

    def receive_track(self, data: bytes) -> list[Event]:
        """Take a piece of a microphone track: 16-bit mono at 16 kHz, the form of a default `input`.

        It comes all the time, so it is ignored where nobody listens, or listens to frames.
        """
        if not self._from_track or self._state is _State.NONE:
            return []
        return self.receive(data)

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
        if self._state in (_State.NONE, _State.LISTENING):
            return []
        self._state = _State.NONE
        return [RecordingDropped()]

    def listen(self, message: VadStart) -> list[Event]:
        """Watch the microphone for speech; a second call changes how.

        Raises:
            InvalidState: A recording is under way.
            UnsupportedFormat: No such encoding or rate.
        """
        if self._state is not _State.LISTENING:
            self._check_free()
        _check_encoding(message.input)
        if message.input.sample_rate not in RATES_HZ:
            rates = ", ".join(map(str, RATES_HZ))
            raise _no_such_rate(message.input.sample_rate, f"one of {rates}")
        self._state = _State.LISTENING
        self._from_track = "input" not in message.model_fields_set
        return [UplinkBegun(message)]

    def stop_listening(self) -> list[Event]:
        """Watch it no more; without `listen` nothing happens."""
        if self._state is not _State.LISTENING:
            return []
        self._state = _State.NONE
        return [UplinkEnded()]

    def over(self) -> None:
        """The recording has been answered."""
        self._state = _State.NONE

    def _check_free(self) -> None:
        if self._state in (_State.OPEN, _State.CHECKING):
            raise InvalidState("a recording is under way", how_to_fix="commit or cancel it first")
        if self._state is _State.LISTENING:
            raise InvalidState(
                "the microphone is being watched for speech", how_to_fix="send vad.stop first"
            )


def _check_encoding(form: RecordingFormat) -> int:
    """Return the bytes of one sample."""
    sample_bytes = SAMPLE_BYTES.get(form.encoding)
    if sample_bytes is None:
        raise UnsupportedFormat(
            "input.encoding is not known", how_to_fix=f"use one of {', '.join(SAMPLE_BYTES)}"
        )
    return sample_bytes


def _no_such_rate(rate: int, use: str) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"input.sample_rate = {rate} is not available", how_to_fix=f"use {use}"
    )
