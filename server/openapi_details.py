"""What requests hold and answers are, for the OpenAPI document: what routes do not say themselves.

A route without an entry is listed with the first line of its endpoint's docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from cosyvoice_stream.server.dashscope_routes import EnrolmentBody
from cosyvoice_stream.server.elevenlabs_speech import ElevenLabsBody
from cosyvoice_stream.server.elevenlabs_voices import NewVoice
from cosyvoice_stream.server.openai_speech import SpeechBody
from cosyvoice_stream.server.openai_voices import ConsentChange, ConsentFields, VoiceFields
from cosyvoice_stream.server.voice_info import MAX_NAME_CHARS
from cosyvoice_stream.server.wire_requests import SpeechRequest

JSON: Final = "application/json"
FORM: Final = "multipart/form-data"
URL_FORM: Final = "application/x-www-form-urlencoded"

_FILE: Final[dict[str, Any]] = {"type": "string", "format": "binary"}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_AUDIO_TYPES: Final = ("audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav")


@dataclass(frozen=True, slots=True)
class Details:
    """What the document says of one operation beyond its summary."""

    body: type[BaseModel] | None = None
    """JSON body."""
    form: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of a form → schema."""
    required: tuple[str, ...] = ()
    """Of the fields of a form."""
    example: dict[str, Any] | None = None
    """A request that works on every server."""
    query: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of the query → schema."""
    answers: tuple[str, ...] = (JSON,)
    """Content types of a success."""
    status: int = 200
    """Of a success."""
    note: str = ""
    """Behind the summary."""


def _form_of(model: type[BaseModel], **files: dict[str, Any]) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return {**properties, **files}


_REFERENCE: Final = {
    "inference_sft": ("tts_text", "spk_id"),
    "inference_zero_shot": ("tts_text", "prompt_text", "prompt_wav"),
    "inference_cross_lingual": ("tts_text", "prompt_wav"),
    "inference_instruct": ("tts_text", "spk_id", "instruct_text"),
    "inference_instruct2": ("tts_text", "instruct_text", "prompt_wav"),
}
_EXAMPLES: Final = {"tts_text": "Hello from CosyVoice.", "spk_id": "英文女"}


def _reference(fields: tuple[str, ...]) -> Details:
    return Details(
        form={name: _FILE if name == "prompt_wav" else _TEXT for name in fields},
        required=fields,
        example={name: _EXAMPLES[name] for name in fields if name in _EXAMPLES},
        answers=("audio/pcm",),
        note="16-bit samples at the rate of the model, mono, without a header.",
    )


DETAILS: Final[dict[tuple[str, str], Details]] = {
    ("GET", "/metrics"): Details(answers=("text/plain",)),
    ("POST", "/v1/speak"): Details(
        body=SpeechRequest,
        example={"text": "Hello there.", "output": {"encoding": "wav"}},
        answers=(*_AUDIO_TYPES, "audio/pcm"),
        note="`X-Sample-Rate` and `X-Encoding` say how to play bare samples.",
    ),
    ("POST", "/v1/voices"): Details(
        form={
            "file": {**_FILE, "description": "A recording of 3 to 30 seconds"},
            "name": {**_TEXT, "maxLength": MAX_NAME_CHARS},
            "transcript": {**_TEXT, "description": "What is said in it"},
            "consent": {**_TEXT, "description": "The speaker's statement of consent"},
            "persist": {"type": "boolean", "default": True},
        },
        required=("file",),
        status=201,
        note="The recording may also be the body, and the fields in the query.",
    ),
    ("DELETE", "/v1/voices/{voice_id}"): Details(answers=(), status=204),
    ("POST", "/v1/audio/speech"): Details(
        body=SpeechBody,
        example={"model": "tts-1", "input": "Hello there.", "voice": "alloy"},
        answers=(*_AUDIO_TYPES, "audio/opus", "audio/pcm", "text/event-stream"),
        note="With a recording `prompt_speech` beside the fields, as a form, for Xinference.",
    ),
    ("POST", "/v1/audio/voices"): Details(
        form=_form_of(VoiceFields, audio_sample=_FILE), required=("name", "audio_sample")
    ),
    ("POST", "/v1/audio/voice_consents"): Details(
        form=_form_of(ConsentFields, recording=_FILE),
        required=("name", "language", "recording"),
    ),
    ("GET", "/v1/audio/voice_consents"): Details(
        query={
            "after": _TEXT,
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        }
    ),
    ("POST", "/v1/audio/voice_consents/{consent}"): Details(body=ConsentChange),
    **{
        ("POST", f"/elevenlabs/v1/text-to-speech/{{voice_id}}{end}"): Details(
            body=ElevenLabsBody,
            query={"output_format": {**_TEXT, "default": "mp3_44100_128"}},
            answers=(JSON,) if "timestamps" in end else ("audio/mpeg", "audio/pcm", "audio/basic"),
        )
        for end in ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
    },
    ("POST", "/api/v1/services/audio/tts/customization"): Details(body=EnrolmentBody),
    ("POST", "/elevenlabs/v1/voices/add"): Details(
        form=_form_of(NewVoice, files=_FILE), required=("name", "files")
    ),
    ("GET", "/v1/lexicon"): Details(answers=(JSON, "text/csv")),
    ("DELETE", "/v1/lexicon"): Details(answers=(), status=204),
    ("DELETE", "/v1/lexicon/{word}"): Details(answers=(), status=204),
    **{("POST", f"/{name}"): _reference(fields) for name, fields in _REFERENCE.items()},
    **{
        ("GET", f"/{name}"): Details(
            answers=("audio/pcm",), note="Its form is the body, as for POST."
        )
        for name in _REFERENCE
    },
}
"""By method and path."""

TAGS: Final[tuple[tuple[str, str], ...]] = (
    ("/v1/audio/", "OpenAI"),
    ("/v1/models", "OpenAI"),
    ("/v1/cluster/", "Xinference"),
    ("/elevenlabs/", "ElevenLabs"),
    ("/inference_", "CosyVoice's own server"),
    ("/api/", "DashScope"),
    ("/v1/", "cosyvoice-stream"),
    ("/", "Operation"),
)
"""Prefix of a path → whose interface it is; the first that fits counts."""
FIRST_TAG: Final = "cosyvoice-stream"
"""Comes before the others."""
