"""Events that clients of OpenAI's Realtime API send, as far as they matter for speaking.

Unknown fields are ignored: the API is about language models, of which there is none here.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from cosyvoice_stream.server.openai_speech import VoiceReference

Id = Annotated[str, Field(min_length=1, max_length=64)]
Modality = Literal["text", "audio"]

FORMATS: Final = {
    "audio/pcm": ("pcm_s16le", 24_000),
    "audio/pcmu": ("mulaw", 8000),
    "audio/pcma": ("alaw", 8000),
}
"""Format → our encoding and its rate in hertz."""
_OLD_FORMATS: Final = {
    "pcm16": "audio/pcm",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
}


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class AudioFormat(_Part):
    """Form of the audio."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: Literal[24_000, 8000] | None = None
    """In hertz; there is one for each format, so it changes nothing."""


class AudioOutput(_Part):
    """How to speak."""

    format: AudioFormat | None = None
    voice: Annotated[str, Field(max_length=128)] | VoiceReference | None = None
    speed: Annotated[float, Field(ge=0.25, le=1.5)] | None = None


class Audio(_Part):
    """Settings of the audio; those of the input have no effect."""

    output: AudioOutput | None = None


class SpeechChanges(_Part):
    """What a session and a response may set, in the present and in the beta form of the API."""

    output_modalities: list[Modality] | None = None
    modalities: list[Modality] | None = None
    """Beta form of `output_modalities`."""
    instructions: Annotated[str, Field(max_length=4096)] | None = None
    """Style in words."""
    audio: Audio | None = None
    voice: Annotated[str, Field(max_length=128)] | VoiceReference | None = None
    """Beta form of ``audio.output.voice``."""
    speed: Annotated[float, Field(ge=0.25, le=1.5)] | None = None
    """Beta form of ``audio.output.speed``."""
    output_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | None = None
    """Beta form of ``audio.output.format``."""

    def changes(self) -> dict[str, Any]:
        """What was set, as fields of `SpeechConfig`."""
        output = (self.audio.output if self.audio else None) or AudioOutput()
        voice = output.voice if output.voice is not None else self.voice
        old_format = self.output_audio_format
        form: str | None = output.format.type if output.format else None
        if form is None and old_format is not None:
            form = _OLD_FORMATS[old_format]
        changes = {
            "voice": voice.id if isinstance(voice, VoiceReference) else voice,
            "speed": output.speed if output.speed is not None else self.speed,
            "format": form,
            "instructions": self.instructions,
        }
        return {name: value for name, value in changes.items() if value is not None}

    @property
    def text_only(self) -> bool:
        """Whether no audio is wanted."""
        wanted = self.output_modalities or self.modalities
        return wanted is not None and "audio" not in wanted


class SpeechConfig(_Part):
    """How a session or a response speaks, with every value filled in."""

    voice: str = "alloy"
    speed: float = 1.0
    format: str = "audio/pcm"
    instructions: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return ``audio`` of a session."""
        _, rate = FORMATS[self.format]
        form: dict[str, Any] = {"type": self.format}
        if self.format == "audio/pcm":
            form["rate"] = rate
        return {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "turn_detection": None,
                "transcription": None,
                "noise_reduction": None,
            },
            "output": {"format": form, "voice": self.voice, "speed": self.speed},
        }


class TextPart(_Part):
    """A piece of a message."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class ItemPart(_Part):
    """A message, or a reference to one."""

    id: Id | None = None
    type: Literal["message", "item_reference"] = "message"
    role: Literal["user", "assistant", "system"] = "user"
    content: list[TextPart] = []


class ResponseAsk(SpeechChanges):
    """What one response is asked for."""

    conversation: str | None = None
    input: list[ItemPart] | None = None
    metadata: dict[str, str] | None = None


class ClientEvent(_Part):
    """Any event."""

    type: Annotated[str, Field(max_length=100)]
    event_id: Annotated[str, Field(max_length=512)] | None = None


class SessionUpdate(ClientEvent):
    """Changes how the session speaks."""

    session: SpeechChanges


class ItemCreate(ClientEvent):
    """Adds a message."""

    item: ItemPart
    previous_item_id: Id | None = None


class ItemAsk(ClientEvent):
    """Names an item: to delete it, or to see it."""

    item_id: Id


class ItemTruncate(ItemAsk):
    """Says how much of an item was heard."""

    content_index: int = 0
    audio_end_ms: Annotated[int, Field(ge=0)]


class ResponseCreate(ClientEvent):
    """Asks to speak."""

    response: ResponseAsk = ResponseAsk()


class ResponseCancel(ClientEvent):
    """Asks to stop."""

    response_id: str | None = None
