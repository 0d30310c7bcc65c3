"""What the session protocol asks the session to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.server.utterance import Utterance
from cosyvoice_stream.server.wire import VadStart, VoiceBegin


@dataclass(frozen=True, slots=True)
class Arrived:
    """An utterance was opened, or has got text, a flush, or the end of its text."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class Stopped:
    """An utterance was ended by its client, or by a limit: stop speaking it."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class RecordingBegun:
    """A microphone recording follows."""

    message: VoiceBegin


@dataclass(frozen=True, slots=True)
class RecordingAudio:
    """A piece of the recording, cut anywhere."""

    data: bytes


@dataclass(frozen=True, slots=True)
class RecordingCommitted:
    """The recording is complete. The session answers and then calls `recording_over`."""

    request_id: str | None = None
    """For the answer."""


@dataclass(frozen=True, slots=True)
class RecordingDropped:
    """The recording is to be forgotten."""

    error: VoiceStreamError | None = None
    """Why, if the client did not ask for it."""
    request_id: str | None = None
    """Of the message that began it, for the answer."""


@dataclass(frozen=True, slots=True)
class UplinkBegun:
    """The listener's microphone follows. The session says what it hears with `uplink_changed`."""

    message: VadStart


@dataclass(frozen=True, slots=True)
class UplinkAudio:
    """A piece of the microphone's stream, cut anywhere."""

    data: bytes


@dataclass(frozen=True, slots=True)
class UplinkEnded:
    """No more of the microphone."""


Event: TypeAlias = (
    Arrived
    | Stopped
    | RecordingBegun
    | RecordingAudio
    | RecordingCommitted
    | RecordingDropped
    | UplinkBegun
    | UplinkAudio
    | UplinkEnded
)
