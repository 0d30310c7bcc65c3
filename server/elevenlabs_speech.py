"""ElevenLabs' speech over HTTP: whole, in pieces, and with the time of each character.

Everything but the form of the request and of the answer is that of ``POST /v1/speak``.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.routing import Route

from cosyvoice_stream.server.char_times import CharTime, CharTimes
from cosyvoice_stream.server.elevenlabs_format import PREMADE, VoiceSettings, speech_changes
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.json_body import check_chars, parse_body, read_text_request
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.speak_response import SpeakResponse, SpeechForm
from cosyvoice_stream.server.speech import Done, MarksOut, Started
from cosyvoice_stream.server.vendor_paths import ELEVENLABS
from cosyvoice_stream.server.voice_names import find_voice
from cosyvoice_stream.server.wire_settings import UtteranceSettings

_MIME: Final = {
    "mp3": "audio/mpeg",
    "pcm_s16le": "audio/pcm",
    "wav": "audio/wav",
    "mulaw": "audio/basic",
    "alaw": "audio/x-alaw-basic",
    "opus": "audio/ogg",
}


class ElevenLabsBody(BaseModel):
    """What a client may send; what is not here has no effect."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    text: str
    """What is spoken."""
    model_id: Annotated[str, Field(max_length=256)] | None = None
    """Any; the server has one engine."""
    language_code: Annotated[str, Field(max_length=64)] | None = None
    voice_settings: VoiceSettings | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    apply_text_normalization: Literal["auto", "on", "off"] | None = None


def elevenlabs_speech_routes() -> list[Route]:
    """Return the routes of this module."""
    base = ELEVENLABS + "/v1/text-to-speech/{voice_id}"
    return [
        Route(base, elevenlabs_speech, methods=["POST"]),
        Route(base + "/stream", elevenlabs_stream, methods=["POST"]),
        Route(base + "/with-timestamps", elevenlabs_timed, methods=["POST"]),
        Route(base + "/stream/with-timestamps", elevenlabs_timed_lines, methods=["POST"]),
    ]


async def elevenlabs_speech(request: Request) -> SpeakResponse:
    """Speak a text; audio follows while it is made."""
    return await _speak(request, _AudioForm)


async def elevenlabs_stream(request: Request) -> SpeakResponse:
    """Speak a text like the path without ``/stream``, which streams as well."""
    return await _speak(request, _AudioForm)


async def elevenlabs_timed(request: Request) -> SpeakResponse:
    """Speak a text; the audio and the time of each character come as one JSON object."""
    return await _speak(request, _ObjectForm)


async def elevenlabs_timed_lines(request: Request) -> SpeakResponse:
    """Speak a text; pieces of audio with the times of their characters come as lines of JSON."""
    return await _speak(request, _LinesForm)


async def _speak(request: Request, form: Callable[[str], SpeechForm]) -> SpeakResponse:
    services = services_of(request)
    services.readiness.require()
    limit = services.settings.max_text_chars
    body = await read_text_request(request, limit, services.settings.stall_timeout_s)
    wanted = parse_body(ElevenLabsBody, body)
    check_chars(wanted.text, limit)
    if not wanted.text.strip():
        raise WrongField("text", "the field 'text' holds no text")
    changes = speech_changes(
        voice=await find_voice(services, request.path_params["voice_id"], PREMADE),
        output_format=request.query_params.get("output_format"),
        language=wanted.language_code,
        seed=wanted.seed,
        normalization=wanted.apply_text_normalization,
        voice_settings=wanted.voice_settings,
    )
    settings = UtteranceSettings().merged(changes)
    return SpeakResponse(services, wanted.text, settings, form(wanted.text))


class _AudioForm(SpeechForm):
    """The bytes of a file, in pieces."""

    mime: str | None = None
    """That of the audio where it is None."""

    def __init__(self, text: str) -> None:
        self._chars = CharTimes(text)
        self._cost = len(text)

    def headers(self, started: Started) -> dict[str, str]:
        """See `SpeechForm.headers`."""
        return {
            **super().headers(started),
            "Content-Type": self.mime or _MIME[started.encoding],
            "request-id": secrets.token_hex(10),
            "character-cost": str(self._cost),
        }


class _LinesForm(_AudioForm):
    """A line of JSON for each piece."""

    mime = "application/json"

    def marks(self, marks: MarksOut) -> None:
        """See `SpeechForm.marks`."""
        self._chars.add_words(marks.words)

    def audio(self, data: bytes) -> bytes:
        """See `SpeechForm.audio`."""
        return _line(data, self._chars.take())

    def done(self, done: Done) -> bytes:
        """The characters behind the last word."""
        rest = self._chars.finish(done.audio_ms)
        return _line(b"", rest) if rest else b""


class _ObjectForm(_LinesForm):
    """One JSON object, whose beginning leaves before its end is known."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._unsent = b'{"audio_base64":"'
        self._left = b""

    def audio(self, data: bytes) -> bytes:
        """See `SpeechForm.audio`: base64 goes by threes."""
        data = self._left + data
        whole = len(data) - len(data) % 3
        self._left = data[whole:]
        begin, self._unsent = self._unsent, b""
        return begin + base64.b64encode(data[:whole])

    def done(self, done: Done) -> bytes:
        """See `SpeechForm.done`."""
        timed = json.dumps(_alignment(self._chars.finish(done.audio_ms))).encode()
        rest = self._unsent + base64.b64encode(self._left) + b'"'
        return rest + b',"alignment":' + timed + b',"normalized_alignment":' + timed + b"}"


def _line(data: bytes, chars: Sequence[CharTime]) -> bytes:
    timed = _alignment(chars)
    audio = base64.b64encode(data).decode("ascii")
    line = {"audio_base64": audio, "alignment": timed, "normalized_alignment": timed}
    return json.dumps(line).encode() + b"\n"


def _alignment(chars: Sequence[CharTime]) -> dict[str, Any] | None:
    """The times from the beginning of the whole answer."""
    if not chars:
        return None
    return {
        "characters": [char.char for char in chars],
        "character_start_times_seconds": [round(char.start_ms / 1000, 3) for char in chars],
        "character_end_times_seconds": [round(char.end_ms / 1000, 3) for char in chars],
    }
