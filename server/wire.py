"""Messages of the protocol `cosyvoice-stream.v1` and their JSON and binary forms.

What clients send is checked strictly: unknown types and fields are errors. What servers send is
read leniently, so that a client goes on working when a later server adds a field. The meaning of
every field is in ``docs/protocol.md``. Error texts name the field, never what the user put there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.wire_replies import (
    BookmarkTime,
    EngineSummary,
    ErrorMessage,
    Limits,
    Marks,
    ResumeOffer,
    ServerMessage,
    SessionReady,
    SessionResumed,
    SessionUpdated,
    TrackPosition,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    UtteranceWarning,
    VadEvent,
    VisemeTime,
    VoiceName,
    VoiceProgress,
    VoiceReady,
    VoiceRejected,
    WordTime,
    parse_server_message,
)
from cosyvoice_stream.server.wire_requests import (
    ClientMessage,
    Message,
    Names,
    Options,
    OutputOptions,
    Playback,
    RecordingFormat,
    SessionUpdate,
    SoundChanges,
    Speak,
    SpeechRequest,
    TextDelta,
    TextFlush,
    TextOptions,
    UplinkFormat,
    UtteranceCancel,
    UtteranceEnd,
    UtteranceStart,
    VadStart,
    VadStop,
    VoiceBegin,
    VoiceCancel,
    VoiceCommit,
    names_of,
    parse_client_message,
    parse_speech,
)
from cosyvoice_stream.server.wire_settings import (
    ENCODINGS,
    SAMPLE_RATES,
    OutputSettings,
    SoundSettings,
    TextSettings,
    UtteranceSettings,
)

__all__ = [
    "ENCODINGS",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL",
    "SAMPLE_RATES",
    "AudioHeader",
    "BookmarkTime",
    "ClientMessage",
    "EngineSummary",
    "ErrorMessage",
    "Limits",
    "Marks",
    "Message",
    "Names",
    "Options",
    "OutputOptions",
    "OutputSettings",
    "Playback",
    "RecordingFormat",
    "ServerMessage",
    "ResumeOffer",
    "SessionReady",
    "SessionResumed",
    "SessionUpdate",
    "SessionUpdated",
    "SoundChanges",
    "SoundSettings",
    "Speak",
    "SpeechRequest",
    "TextDelta",
    "TextFlush",
    "TextOptions",
    "TextSettings",
    "TrackPosition",
    "UplinkFormat",
    "UtteranceCancel",
    "UtteranceCancelled",
    "UtteranceDone",
    "UtteranceEnd",
    "UtteranceSettings",
    "UtteranceStart",
    "UtteranceStarted",
    "UtteranceWarning",
    "VadEvent",
    "VadStart",
    "VadStop",
    "VisemeTime",
    "VoiceBegin",
    "VoiceCancel",
    "VoiceCommit",
    "VoiceName",
    "VoiceProgress",
    "VoiceReady",
    "VoiceRejected",
    "WordTime",
    "names_of",
    "parse_client_message",
    "parse_server_message",
    "parse_speech",
]

PROTOCOL: Final = "cosyvoice-stream.v1"
MAX_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""Largest WebSocket message that a server accepts; beyond it the connection ends with 1009."""


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """The 12 bytes before the audio of a binary frame from the server."""

    number: int
    """Of the utterance, as in `utterance.started`."""
    sample: int
    """Index of the first sample of the frame, at the stated rate."""
    last: bool = False
    """The utterance has no further frame."""

    SIZE: ClassVar[int] = 12

    def pack(self) -> bytes:
        """The bytes."""
        return _HEADER.pack(_KIND_AUDIO, int(self.last), 0, self.number, self.sample & _U32)

    @classmethod
    def unpack(cls, frame: bytes) -> AudioHeader:
        """Read the beginning of a frame; the audio is ``frame[AudioHeader.SIZE:]``.

        Raises:
            InvalidMessage: Too short, or another kind of frame.
        """
        if len(frame) < cls.SIZE:
            raise InvalidMessage("a binary frame is shorter than its header")
        kind, flags, _, number, sample = _HEADER.unpack_from(frame)
        if kind != _KIND_AUDIO:
            raise InvalidMessage("a binary frame is of an unknown kind")
        return cls(number, sample, bool(flags & 1))


_KIND_AUDIO: Final = 1
_U32: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("<BBHII")
