"""What the server says, as pydantic models: built by the session, read leniently by clients."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.wire_settings import UtteranceSettings


class ServerMessageBase(BaseModel):
    """A message from the server. Unknown fields are ignored when reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    omit_none: ClassVar[bool] = False

    def to_json(self) -> str:
        """The text frame."""
        left_out = {name for name in _LEFT_OUT if getattr(self, name, "") is None}
        return self.model_dump_json(exclude_none=self.omit_none, exclude=left_out)


_LEFT_OUT: Final = ("bookmarks", "mouth", "request_id", "reason", "resume")
"""Fields that are absent rather than null."""


class AnswerBase(ServerMessageBase):
    """A message that answers one of the client's."""

    request_id: str | None = None
    """The `request_id` of what it answers; left out where that had none."""


class VoiceName(BaseModel):
    """A built-in voice, in short."""

    id: str
    name: str


class EngineSummary(BaseModel):
    """What a client needs to know about the engine."""

    model_config = ConfigDict(extra="ignore")

    name: str
    sample_rate: int
    languages: list[str]
    features: list[str]
    description: str
    voices: list[VoiceName]


class Limits(BaseModel):
    """What one session may ask for."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_message_bytes: int = 2 * 1024 * 1024
    """Larger WebSocket messages end the connection (1009)."""
    max_message_chars: int = 65_536
    """Characters of text in one message."""
    max_utterance_chars: int = 100_000
    """Characters of text in one utterance."""
    max_live_chars: int = 200_000
    """Characters of text in all live utterances of a session."""
    max_utterances: int = 64
    """Live utterances of a session, spoken or waiting."""
    max_recording_s: float = 60.0
    """Length of a microphone recording."""


class ResumeOffer(BaseModel):
    """How a client that is cut off can come back."""

    model_config = ConfigDict(extra="ignore")

    token: str
    grace_ms: int


class SessionReady(ServerMessageBase):
    """The first message of a connection."""

    type: Literal["session.ready"] = "session.ready"
    protocol: str
    session: str
    engine: EngineSummary
    limits: Limits
    settings: UtteranceSettings
    resume: ResumeOffer | None = None
    """Left out where the client did not ask for it."""


class SessionResumed(ServerMessageBase):
    """The first message on a connection that goes on with a session; not counted."""

    type: Literal["session.resumed"] = "session.resumed"
    session: str
    received: int
    """Messages and frames of the client that have arrived since the session began."""


class SessionUpdated(AnswerBase):
    """Answer to `session.update`: the settings in force."""

    type: Literal["session.updated"] = "session.updated"
    settings: UtteranceSettings
    warnings: list[str] = []


class UtteranceStarted(ServerMessageBase):
    """Everything that is needed to play the audio that follows."""

    type: Literal["utterance.started"] = "utterance.started"
    id: str
    number: int
    voice: str
    seed: int
    encoding: str
    sample_rate: int
    channels: int
    bytes_per_sample: int | None
    byte_order: str | None
    mime: str
    warnings: list[str] = []


class WordTime(BaseModel):
    """When a word is heard, and where it stands in the client's text."""

    text: str
    char_start: int
    char_end: int
    start_ms: float
    end_ms: float


class VisemeTime(BaseModel):
    """Mouth shape over a stretch of audio."""

    viseme: str
    mouth_open: float
    start_ms: float
    end_ms: float


class BookmarkTime(BaseModel):
    """When a ``<mark>`` of SSML is heard."""

    name: str
    at_ms: float


class MouthTimes(BaseModel):
    """How far the mouth is open, 0 to 1, at equal steps."""

    start_ms: float
    """Time of the first value."""
    step_ms: float
    values: list[float]


class Marks(ServerMessageBase):
    """Times of words and visemes whose audio follows."""

    type: Literal["marks"] = "marks"
    id: str
    words: list[WordTime] = []
    visemes: list[VisemeTime] = []
    bookmarks: list[BookmarkTime] | None = None
    """Left out where there are none."""
    mouth: MouthTimes | None = None
    """Left out where it was not asked for."""


class UtteranceWarning(ServerMessageBase):
    """Something about the text of an utterance, which is spoken all the same."""

    omit_none: ClassVar[bool] = True

    type: Literal["utterance.warning"] = "utterance.warning"
    id: str
    message: str
    char_start: int | None = None
    """Of what is meant, in the client's text; left out where nothing particular is."""
    char_end: int | None = None
    suggestion: str | None = None
    """What could stand there instead; left out where nothing comes to mind."""


class UtteranceDone(ServerMessageBase):
    """The utterance is complete."""

    type: Literal["utterance.done"] = "utterance.done"
    id: str
    audio_ms: float
    first_audio_ms: float | None
    rtf: float | None
    characters: int


class UtteranceCancelled(AnswerBase):
    """The utterance was stopped; none of its audio follows."""

    type: Literal["utterance.cancelled"] = "utterance.cancelled"
    id: str | None
    sent_ms: float
    played_ms: float
    played_estimated: bool
    spoken_text: str
    reason: Literal["speech"] | None = None
    """``speech``: the listener spoke; left out where the client asked for it."""


class VoiceProgress(ServerMessageBase):
    """How a running recording is doing."""

    type: Literal["voice.progress"] = "voice.progress"
    captured_ms: float
    speech_ms: float
    level_dbfs: float
    hint: str | None


class VoiceReady(AnswerBase):
    """A recording has become a voice."""

    type: Literal["voice.ready"] = "voice.ready"
    voice: dict[str, Any]
    quality: dict[str, Any] | None = None
    transcript: str | None = None
    warnings: list[str] = []


class VoiceRejected(AnswerBase):
    """A recording cannot be used."""

    type: Literal["voice.rejected"] = "voice.rejected"
    reason: str
    message: str
    how_to_fix: str | None = None
    quality: dict[str, Any] | None = None


class VadEvent(ServerMessageBase):
    """What comes up the microphone is something else from here on."""

    type: Literal["vad.event"] = "vad.event"
    state: Literal["silence", "maybe_speech", "speech"]
    at_ms: float


class TrackPosition(ServerMessageBase):
    """Over WebRTC: when a sample of an utterance sounds, on the clock of the audio track."""

    type: Literal["track.position"] = "track.position"
    id: str
    sample: int
    """Of the utterance, at 48 kHz; what follows it follows on the track, until the next message."""
    rtp_timestamp: int


class ErrorMessage(AnswerBase):
    """Something went wrong. With an `id`, that utterance has ended with it."""

    omit_none: ClassVar[bool] = True

    type: Literal["error"] = "error"
    id: str | None = None
    code: str
    message: str
    how_to_fix: str | None = None
    retry_after_ms: int | None = None


ServerMessage: TypeAlias = (
    SessionReady
    | SessionResumed
    | SessionUpdated
    | UtteranceStarted
    | Marks
    | UtteranceWarning
    | UtteranceDone
    | UtteranceCancelled
    | VoiceProgress
    | VoiceReady
    | VoiceRejected
    | VadEvent
    | TrackPosition
    | ErrorMessage
)
_server_message: Final[TypeAdapter[ServerMessage]] = TypeAdapter(
    Annotated[ServerMessage, Field(discriminator="type")]
)


def parse_server_message(text: str) -> ServerMessage | None:
    """Read one text frame of a server.

    Returns:
        The message, or None for a type that this version does not know.

    Raises:
        InvalidMessage: It is not JSON, or a field is missing or of the wrong kind.
    """
    try:
        return _server_message.validate_json(text)
    except ValidationError as error:
        if error.errors(include_input=False)[0]["type"] == "union_tag_invalid":
            return None
        raise InvalidMessage("the server sent a message that cannot be read") from error
