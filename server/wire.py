"""Messages of the protocol `cosyvoice-stream.v1` and their JSON and binary forms.

What clients send is checked strictly: unknown types and fields are errors. What servers send is
read leniently, so that a client goes on working when a later server adds a field. The meaning of
every field is in ``docs/protocol.md``. Error texts name the field, never what the user put there.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.wire_replies import (
    EngineSummary,
    ErrorMessage,
    Limits,
    Marks,
    ServerMessage,
    SessionReady,
    SessionUpdated,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    VisemeTime,
    VoiceName,
    VoiceProgress,
    VoiceReady,
    VoiceRejected,
    WordTime,
    parse_server_message,
)
from cosyvoice_stream.server.wire_settings import (
    ENCODINGS,
    SAMPLE_RATES,
    MarkKind,
    OutputSettings,
    TextSettings,
    UtteranceSettings,
)

__all__ = [
    "ENCODINGS",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL",
    "SAMPLE_RATES",
    "AudioHeader",
    "ClientMessage",
    "EngineSummary",
    "ErrorMessage",
    "Limits",
    "Marks",
    "Options",
    "OutputOptions",
    "OutputSettings",
    "Playback",
    "RecordingFormat",
    "ServerMessage",
    "SessionReady",
    "SessionUpdate",
    "SessionUpdated",
    "Speak",
    "SpeechRequest",
    "TextDelta",
    "TextFlush",
    "TextOptions",
    "TextSettings",
    "UtteranceCancel",
    "UtteranceCancelled",
    "UtteranceDone",
    "UtteranceEnd",
    "UtteranceSettings",
    "UtteranceStart",
    "UtteranceStarted",
    "VisemeTime",
    "VoiceBegin",
    "VoiceCancel",
    "VoiceCommit",
    "VoiceName",
    "VoiceProgress",
    "VoiceReady",
    "VoiceRejected",
    "WordTime",
    "opening_id",
    "parse_client_message",
    "parse_server_message",
    "parse_speech",
]

PROTOCOL: Final = "cosyvoice-stream.v1"
MAX_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""Largest WebSocket message that a server accepts; beyond it the connection ends with 1009."""

UtteranceId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-.:]{1,64}$")]


class _FromClient(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class OutputOptions(_FromClient):
    """Wanted form of the audio; absent fields keep their value, None restores the default."""

    encoding: str | None = None
    sample_rate: int | None = None
    frame_ms: int | None = None


class TextOptions(_FromClient):
    """How text is read; absent fields keep their value, None restores the default."""

    clean: bool | None = None
    normalize: bool | None = None


class Options(_FromClient):
    """The options of an utterance as a client sends them."""

    voice: Annotated[str, Field(max_length=128)] | None = None
    language: Annotated[str, Field(max_length=64)] | None = None
    instruct: Annotated[str, Field(max_length=2000)] | None = None
    speed: float | None = None
    pitch: float | None = None
    volume: float | None = None
    seed: int | None = None
    strength: float | None = None
    output: OutputOptions | None = None
    marks: list[MarkKind] | None = None

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        return self.model_dump(exclude_unset=True, exclude={"type", "id", "text"})


class _WithTextOptions(Options):
    text: TextOptions | None = None

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        return self.model_dump(exclude_unset=True, exclude={"type", "id"})


class SessionUpdate(_WithTextOptions):
    """Changes the defaults of utterances that are started afterwards."""

    type: Literal["session.update"] = "session.update"


class UtteranceStart(_WithTextOptions):
    """Opens an utterance."""

    type: Literal["utterance.start"] = "utterance.start"
    id: UtteranceId


class TextDelta(_FromClient):
    """Appends text to an open utterance."""

    type: Literal["text.delta"] = "text.delta"
    id: UtteranceId
    text: str


class TextFlush(_FromClient):
    """Asks to speak what has arrived."""

    type: Literal["text.flush"] = "text.flush"
    id: UtteranceId


class UtteranceEnd(_FromClient):
    """No more text."""

    type: Literal["utterance.end"] = "utterance.end"
    id: UtteranceId


class SpeechRequest(Options):
    """Options beside a whole text: `text` is taken, so the text options stand on their own."""

    text: str
    clean: bool | None = None
    normalize: bool | None = None

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        sent = super().changes()
        reading = {name: sent.pop(name) for name in ("clean", "normalize") if name in sent}
        return sent | ({"text": reading} if reading else {})


class Speak(SpeechRequest):
    """Start, text and end in one."""

    type: Literal["speak"] = "speak"
    id: UtteranceId


class UtteranceCancel(_FromClient):
    """Stops one utterance, or all when `id` is None."""

    type: Literal["utterance.cancel"] = "utterance.cancel"
    id: UtteranceId | None = None


class Playback(_FromClient):
    """How much of an utterance the listener has heard."""

    type: Literal["playback"] = "playback"
    id: UtteranceId
    played_ms: Annotated[float, Field(ge=0, le=1e12)]


class RecordingFormat(_FromClient):
    """Form of a microphone recording: mono."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 16_000


class VoiceBegin(_FromClient):
    """A microphone recording follows in binary frames."""

    type: Literal["voice.begin"] = "voice.begin"
    name: Annotated[str, Field(max_length=200)] | None = None
    transcript: Annotated[str, Field(max_length=2000)] | None = None
    consent: Annotated[str, Field(max_length=2000)] | None = None
    input: RecordingFormat = RecordingFormat()
    persist: bool = False


class VoiceCommit(_FromClient):
    """The recording is complete."""

    type: Literal["voice.commit"] = "voice.commit"


class VoiceCancel(_FromClient):
    """Forget the recording."""

    type: Literal["voice.cancel"] = "voice.cancel"


ClientMessage: TypeAlias = Annotated[
    SessionUpdate
    | UtteranceStart
    | TextDelta
    | TextFlush
    | UtteranceEnd
    | Speak
    | UtteranceCancel
    | Playback
    | VoiceBegin
    | VoiceCommit
    | VoiceCancel,
    Field(discriminator="type"),
]
_client_message: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


def parse_client_message(text: str) -> ClientMessage:
    """Read one text frame.

    Args:
        text: The whole frame.

    Raises:
        InvalidMessage: It is not JSON, or not a message that a client may send. The text names the
            field and never quotes a value.
    """
    try:
        return _client_message.validate_json(text)
    except ValidationError as error:
        raise InvalidMessage(_describe(error)) from None


def parse_speech(body: bytes) -> SpeechRequest:
    """Read the JSON body of ``POST /v1/speak``.

    Raises:
        InvalidMessage: As for `parse_client_message`.
    """
    try:
        return SpeechRequest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidMessage(_describe(error)) from None


def opening_id(text: str) -> str | None:
    """The id of the utterance that a refused message meant to open, for the answer to it."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("type") not in ("utterance.start", "speak"):
        return None
    claimed = message.get("id")
    return claimed if isinstance(claimed, str) and _ID.fullmatch(claimed) else None


def _describe(error: ValidationError) -> str:
    """One sentence about the first mistake: which field, what was expected."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return "the message is not JSON"
    if kind == "union_tag_not_found":
        return "the message has no field 'type'"
    if kind == "union_tag_invalid":
        return "the message has an unknown type"
    # In a union, the location begins with the message type.
    path = [str(part) for part in first["loc"] if part not in _TYPES]
    field = ".".join(path)
    if not path:
        return "the message is not a JSON object of its type"
    if kind == "extra_forbidden":
        # The name came from the client too; only what looks like a field is repeated.
        return f"unknown field {field!r}" if _FIELD.fullmatch(field) else "unknown field"
    if kind == "missing":
        return f"the field {field!r} is missing"
    return f"the field {field!r} is wrong: {first['msg'][:1].lower()}{first['msg'][1:]}"


_ID: Final = re.compile(r"[A-Za-z0-9_\-.:]{1,64}")
_FIELD: Final = re.compile(r"[a-z_][a-z0-9_.]{0,40}")
_TYPES: Final = frozenset(
    message.model_fields["type"].default for message in get_args(get_args(ClientMessage)[0])
)


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
