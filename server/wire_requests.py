"""What clients say, as pydantic models that are checked strictly, and how frames become them.

Error texts name the field, never what the user put there.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.wire_settings import MarkKind, PriorityName

UtteranceId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-.:]{1,64}$")]


class _FromClient(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Message(_FromClient):
    """One message on the socket."""

    request_id: UtteranceId | None = None
    """Chosen by the client; comes back with the answer."""


class OutputOptions(_FromClient):
    """Wanted form of the audio; absent fields keep their value, None restores the default."""

    encoding: str | None = None
    sample_rate: int | None = None
    frame_ms: int | None = None
    lead_ms: int | None = None
    buffer_ms: int | None = None


class SoundChanges(_FromClient):
    """Wanted sound; absent fields keep their value, None restores the default."""

    loudness_dbfs: float | None = None
    lead_in_ms: int | None = None
    head_ms: int | None = None
    tail_ms: int | None = None
    sentence_pause_ms: int | None = None


class StyleChanges(_FromClient):
    """Wanted style; absent fields keep their value, None removes them."""

    dialect: Annotated[str, Field(max_length=40)] | None = None
    emotion: Annotated[str, Field(max_length=40)] | None = None
    pace: Annotated[str, Field(max_length=40)] | None = None
    loudness: Annotated[str, Field(max_length=40)] | None = None
    text: Annotated[str, Field(max_length=2000)] | None = None


class TextOptions(_FromClient):
    """How text is read; absent fields keep their value, None restores the default."""

    clean: bool | None = None
    normalize: bool | None = None
    simplify: bool | None = None


class Options(_FromClient):
    """The options of an utterance as a client sends them."""

    voice: Annotated[str, Field(max_length=128)] | None = None
    language: Annotated[str, Field(max_length=64)] | None = None
    instruct: Annotated[str, Field(max_length=2000)] | None = None
    style: StyleChanges | None = None
    speed: float | None = None
    pitch: float | None = None
    volume: float | None = None
    seed: int | None = None
    strength: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    flow_steps: int | None = None
    output: OutputOptions | None = None
    sound: SoundChanges | None = None
    marks: list[MarkKind] | None = None
    priority: PriorityName | None = None
    ssml: bool | None = None
    lexicon: dict[str, str | None] | None = None
    """Merged word by word; None as a reading removes the word."""

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        return self.model_dump(exclude_unset=True, exclude={"type", "id", "request_id", "text"})


class _WithTextOptions(Options):
    text: TextOptions | None = None

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        return self.model_dump(exclude_unset=True, exclude={"type", "id", "request_id"})


class SessionUpdate(Message, _WithTextOptions):
    """Changes the defaults of utterances that are started afterwards."""

    type: Literal["session.update"] = "session.update"


class UtteranceStart(Message, _WithTextOptions):
    """Opens an utterance."""

    type: Literal["utterance.start"] = "utterance.start"
    id: UtteranceId


class TextDelta(Message):
    """Appends text to an open utterance."""

    type: Literal["text.delta"] = "text.delta"
    id: UtteranceId
    text: str


class TextFlush(Message):
    """Asks to speak what has arrived."""

    type: Literal["text.flush"] = "text.flush"
    id: UtteranceId


class UtteranceEnd(Message):
    """No more text."""

    type: Literal["utterance.end"] = "utterance.end"
    id: UtteranceId


class SpeechRequest(Options):
    """Options beside a whole text: `text` is taken, so the text options stand on their own."""

    text: str
    clean: bool | None = None
    normalize: bool | None = None
    simplify: bool | None = None

    def changes(self) -> dict[str, Any]:
        """The fields that were sent, nested, with None where the default is wanted."""
        sent = super().changes()
        reading = {name: sent.pop(name) for name in TextOptions.model_fields if name in sent}
        return sent | ({"text": reading} if reading else {})


class Speak(Message, SpeechRequest):
    """Start, text and end in one."""

    type: Literal["speak"] = "speak"
    id: UtteranceId


class UtteranceCancel(Message):
    """Stops one utterance, or all when `id` is None."""

    type: Literal["utterance.cancel"] = "utterance.cancel"
    id: UtteranceId | None = None


class Playback(Message):
    """How much of an utterance the listener has heard."""

    type: Literal["playback"] = "playback"
    id: UtteranceId
    played_ms: Annotated[float, Field(ge=0, le=1e12)]


class RecordingFormat(_FromClient):
    """Form of a microphone recording: mono."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 16_000


class VoiceBegin(Message):
    """A microphone recording follows in binary frames."""

    type: Literal["voice.begin"] = "voice.begin"
    name: Annotated[str, Field(max_length=200)] | None = None
    transcript: Annotated[str, Field(max_length=2000)] | None = None
    consent: Annotated[str, Field(max_length=2000)] | None = None
    input: RecordingFormat = RecordingFormat()
    persist: bool = False


class VoiceCommit(Message):
    """The recording is complete."""

    type: Literal["voice.commit"] = "voice.commit"


class VoiceCancel(Message):
    """Forget the recording."""

    type: Literal["voice.cancel"] = "voice.cancel"


class UplinkFormat(RecordingFormat):
    """Form of a microphone stream."""

    channels: Literal[1, 2] = 1
    """With two, interleaved, the second is what the loudspeaker plays."""


class VadStart(Message):
    """The microphone follows in binary frames: stop speaking when somebody speaks into it."""

    type: Literal["vad.start"] = "vad.start"
    input: UplinkFormat = UplinkFormat()
    mode: Annotated[int, Field(ge=0, le=3)] = 2
    """Of the detector: 0 takes much for speech, 3 little."""
    start_ms: Annotated[int, Field(ge=20, le=1000)] = 60
    min_speech_ms: Annotated[int, Field(ge=20, le=5000)] = 200
    stop_ms: Annotated[int, Field(ge=40, le=5000)] = 400
    duck_db: Annotated[float, Field(ge=-60, le=0)] = -12.0
    cancel: bool = True
    """Whether speech cancels what is live."""


class VadStop(Message):
    """No more of the microphone."""

    type: Literal["vad.stop"] = "vad.stop"


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
    | VoiceCancel
    | VadStart
    | VadStop,
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
        raise InvalidMessage(describe(error)) from None


def parse_speech(body: bytes) -> SpeechRequest:
    """Read the JSON body of ``POST /v1/speak``.

    Raises:
        InvalidMessage: As for `parse_client_message`.
    """
    try:
        return SpeechRequest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidMessage(describe(error)) from None


class Names(NamedTuple):
    """What the answer to a message that cannot be read may say of it."""

    opening_id: str | None
    """Id of the utterance that it meant to open."""
    request_id: str | None


def names_of(text: str) -> Names:
    """Find what names a message that was refused, as far as it can be found."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return Names(None, None)
    if not isinstance(message, dict):
        return Names(None, None)
    opens = message.get("type") in ("utterance.start", "speak")
    return Names(_name(message.get("id")) if opens else None, _name(message.get("request_id")))


def _name(claimed: object) -> str | None:
    return claimed if isinstance(claimed, str) and _ID.fullmatch(claimed) else None


def describe(error: ValidationError) -> str:
    """Say in one sentence which field is the first mistake, and what was expected."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return "the message is not JSON"
    if kind == "union_tag_not_found":
        return "the message has no field 'type'"
    if kind == "union_tag_invalid":
        return "the message has an unknown type"
    # In a union, the location holds the message type, or which of the alternatives was tried.
    parts = [str(part) for part in first["loc"] if part not in _TYPES]
    path = parts[:1] + [part for part in parts[1:] if not _ALTERNATIVE.fullmatch(part)]
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
_ALTERNATIVE: Final = re.compile(r"[A-Z]\w*|constrained-\w+|str|int|float|bool")
_FIELD: Final = re.compile(r"[a-z_][a-z0-9_.]{0,40}")
_TYPES: Final = frozenset(
    message.model_fields["type"].default for message in get_args(get_args(ClientMessage)[0])
)
