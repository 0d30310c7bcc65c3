"""OpenAI's ``POST /v1/audio/speech``, as its SDKs and those of its many imitators send it.

Everything but the form of the request and of the answer is that of ``POST /v1/speak``.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.routing import Route

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.server.error_map import error_json, http_status
from cosyvoice_stream.server.error_shapes import WrongField, openai_error
from cosyvoice_stream.server.json_body import check_chars, parse_body, read_text_request
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.speak_response import SpeakResponse, SpeechForm
from cosyvoice_stream.server.speech import Done, Started
from cosyvoice_stream.server.voice_names import find_voice
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import SPEED_RANGE

VOICES: Final = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
"""What OpenAI has built in; some clients refuse to send anything else."""

_ENCODING: Final = {
    "mp3": "mp3",
    "opus": "opus",
    "aac": "aac",
    "flac": "flac",
    "wav": "wav",
    "pcm": "pcm_s16le",
}
_MIME: Final = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Exactly these: clients choose their decoder by them and do not expect parameters."""
_PCM_RATE_HZ: Final = 24_000
_OUTPUT_TOKENS_PER_S: Final = 25
"""Speech tokens of CosyVoice, the unit in which `usage` counts audio."""


class VoiceReference(BaseModel):
    """A voice that was made with ``POST /v1/audio/voices``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    id: Annotated[str, Field(min_length=1, max_length=128)]


class SpeechBody(BaseModel):
    """What a client may send; unknown fields are ignored, as peers add their own."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """Any; the server has one engine."""
    input: str
    """What is spoken."""
    voice: Annotated[str, Field(max_length=128)] | VoiceReference | None
    """Id or name of a voice, one of OpenAI's names, or None for the default voice."""
    instructions: Annotated[str, Field(max_length=4096)] | None = None
    """Style in words."""
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    """``mp3`` where none is given."""
    speed: Annotated[float, Field(ge=0.25, le=4.0)] | None = None
    """Limited to what the engines can, 0.5 to 2."""
    stream_format: Literal["audio", "sse"] | None = None
    """Bare audio, or server-sent events with pieces of it."""
    language: Annotated[str, Field(max_length=64)] | None = None
    """Not OpenAI's: BCP 47 tag of the text."""
    seed: int | None = None
    """Not OpenAI's: same seed, same speech."""
    sample_rate: int | None = None
    """Not OpenAI's: of the audio, in hertz; 24000 where none is given."""

    @property
    def format(self) -> str:
        """The format that was asked for, or the default one."""
        return self.response_format or "mp3"

    def settings(self, voice: str | None) -> UtteranceSettings:
        """Return the options of the utterance.

        Raises:
            InvalidOption: A value is out of range.
            UnsupportedFormat: The format does not have this sample rate.
        """
        slowest, fastest = SPEED_RANGE
        output = {
            "encoding": _ENCODING[self.format],
            "sample_rate": self.sample_rate or _PCM_RATE_HZ,
        }
        changes: dict[str, Any] = {
            "voice": voice,
            "instruct": self.instructions or None,
            "speed": min(max(self.speed or 1.0, slowest), fastest),
            "language": self.language or None,
            "seed": self.seed,
            "output": output,
        }
        try:
            return UtteranceSettings().merged(changes)
        except UnsupportedFormat as error:
            raise WrongField("sample_rate", str(error), how_to_fix=error.how_to_fix) from None


def openai_speech_routes() -> list[Route]:
    """Return the route of this module."""
    return [Route("/v1/audio/speech", openai_speech, methods=["POST"])]


async def openai_speech(request: Request) -> SpeakResponse:
    """Speak a text in one of OpenAI's formats."""
    services = services_of(request)
    services.readiness.require()
    limit = services.settings.max_text_chars
    body = await read_text_request(request, limit, services.settings.stall_timeout_s)
    wanted = parse_body(SpeechBody, body)
    check_chars(wanted.input, limit)
    if not wanted.input.strip():
        raise WrongField("input", "the field 'input' holds no text")
    asked = wanted.voice.id if isinstance(wanted.voice, VoiceReference) else wanted.voice or ""
    settings = wanted.settings(await find_voice(services, asked, VOICES))
    form = _EventForm() if wanted.stream_format == "sse" else _AudioForm(wanted)
    return SpeakResponse(services, wanted.input, settings, form)


class _AudioForm(SpeechForm):
    """The bytes of a file, in pieces."""

    def __init__(self, wanted: SpeechBody) -> None:
        self._format = wanted.format

    def headers(self, started: Started) -> dict[str, str]:
        """See `SpeechForm.headers`."""
        return {**super().headers(started), "Content-Type": _MIME[self._format]}


class _EventForm(SpeechForm):
    """Server-sent events: the pieces of a file in base64, then what it cost."""

    def headers(self, started: Started) -> dict[str, str]:
        """See `SpeechForm.headers`."""
        return {**super().headers(started), "Content-Type": "text/event-stream; charset=utf-8"}

    def audio(self, data: bytes) -> bytes:
        """See `SpeechForm.audio`."""
        return _event("speech.audio.delta", audio=base64.b64encode(data).decode("ascii"))

    def done(self, done: Done) -> bytes:
        """Count characters and speech tokens: nothing is billed, but clients read it."""
        spoken = round(done.audio_ms * _OUTPUT_TOKENS_PER_S / 1000)
        usage = {
            "input_tokens": done.characters,
            "output_tokens": spoken,
            "total_tokens": done.characters + spoken,
        }
        return _event("speech.audio.done", usage=usage)

    def failed(self, error: BaseException) -> bytes | None:
        """See `SpeechForm.failed`."""
        fields = openai_error(http_status(error), error_json(error), error)
        return _event("speech.audio.error", **fields)


def _event(kind: str, **fields: Any) -> bytes:
    return f"data: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()
