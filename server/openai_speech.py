"""OpenAI's ``POST /v1/audio/speech``, as its SDKs and those of its many imitators send it.

Xinference's client sends the same fields, as JSON or beside a recording in a form, and what only
CosyVoice has as JSON text in the field ``kwargs``.

Everything but the form of the request and of the answer is that of ``POST /v1/speak``.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.routing import Route

from cosyvoice_stream.errors import InvalidMessage, UnsupportedFormat
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.enrolling import enrol_once
from cosyvoice_stream.server.error_map import error_json, http_status
from cosyvoice_stream.server.error_shapes import WrongField, openai_error
from cosyvoice_stream.server.json_body import (
    check_chars,
    parse_body,
    parse_values,
    read_text_request,
)
from cosyvoice_stream.server.prompt_text import instruction, split_prompt
from cosyvoice_stream.server.reference_api import SPEAKERS
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.speak_response import SpeakResponse, SpeechForm
from cosyvoice_stream.server.speech import Done, Started
from cosyvoice_stream.server.uploads import receive_upload
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
OUTPUT_TOKENS_PER_S: Final = 25
"""Speech tokens of CosyVoice, the unit in which `usage` counts audio."""


class VoiceReference(BaseModel):
    """A voice that was made with ``POST /v1/audio/voices``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    id: Annotated[str, Field(min_length=1, max_length=128)]


class SpeechBody(BaseModel):
    """What a client may send; unknown fields are ignored, as peers add their own."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
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
    """`mp3` where none is given."""
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

    kwargs: str | None = None
    """Xinference's: JSON of `CosyVoiceFields`."""

    @property
    def format(self) -> str:
        """The format that was asked for, or the default one."""
        return self.response_format or "mp3"

    def settings(self, more: CosyVoiceFields) -> UtteranceSettings:
        """Return the options of the utterance but the voice.

        Raises:
            InvalidOption: A value is out of range.
            UnsupportedFormat: The format does not have this sample rate.
        """
        slowest, fastest = SPEED_RANGE
        output = {
            "encoding": _ENCODING[self.format],
            "sample_rate": _PCM_RATE_HZ if self.sample_rate is None else self.sample_rate,
        }
        changes: dict[str, Any] = {
            "instruct": self.instructions or instruction(more.instruct_text or ""),
            "speed": min(max(self.speed or 1.0, slowest), fastest),
            "language": self.language or None,
            "seed": more.seed if self.seed is None else self.seed,
            "output": output,
        }
        try:
            return UtteranceSettings().merged(changes)
        except UnsupportedFormat as error:
            raise WrongField("sample_rate", str(error), how_to_fix=error.how_to_fix) from None


class CosyVoiceFields(BaseModel):
    """What is in ``kwargs``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    prompt_text: Annotated[str, Field(max_length=1000)] | None = None
    """What is said in the recording."""
    instruct_text: Annotated[str, Field(max_length=4096)] | None = None
    seed: int | None = None


def openai_speech_routes() -> list[Route]:
    """Return the route of this module."""
    return [Route("/v1/audio/speech", openai_speech, methods=["POST"])]


async def openai_speech(request: Request) -> SpeakResponse:
    """Speak a text in one of OpenAI's formats."""
    services = services_of(request)
    services.readiness.require()
    limits = services.settings
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        async with receive_upload(
            request,
            limit_bytes=limits.max_upload_bytes,
            stall_timeout_s=limits.stall_timeout_s,
            known=None,
            file_fields=("prompt_speech",),
            required=False,
        ) as upload:
            wanted = parse_values(SpeechBody, {"voice": "", **upload.fields})
            return await _spoken(request, wanted, upload.path if upload.size_bytes else None)
    body = await read_text_request(request, limits.max_text_chars, limits.stall_timeout_s)
    return await _spoken(request, parse_body(SpeechBody, body), None)


async def _spoken(request: Request, wanted: SpeechBody, clip: Path | None) -> SpeakResponse:
    services = services_of(request)
    check_chars(wanted.input, services.settings.max_text_chars)
    if not wanted.input.strip():
        raise WrongField("input", "the field 'input' holds no text")
    more = _cosyvoice_fields(wanted.kwargs)
    settings = wanted.settings(more)
    ended, voice = None, None
    if clip is not None:
        _, transcript = split_prompt(more.prompt_text or "")
        owner = caller_key(request.scope)
        made = await enrol_once(services, clip, transcript.strip() or None, owner)
        voice, ended = made, partial(services.voices.forget_temporary, made)
    else:
        asked = wanted.voice.id if isinstance(wanted.voice, VoiceReference) else wanted.voice
        voice = await find_voice(services, asked or "", (*VOICES, *SPEAKERS))
    settings = settings.model_copy(update={"voice": voice})
    form = _EventForm() if wanted.stream_format == "sse" else _AudioForm(wanted)
    return SpeakResponse(services, wanted.input, settings, form, ended=ended)


def _cosyvoice_fields(text: str | None) -> CosyVoiceFields:
    if not text:
        return CosyVoiceFields()
    try:
        return parse_body(CosyVoiceFields, text)
    except InvalidMessage as error:
        raise WrongField("kwargs", f"in the field 'kwargs', {error}") from None


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
        spoken = round(done.audio_ms * OUTPUT_TOKENS_PER_S / 1000)
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
