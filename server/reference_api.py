"""The HTTP endpoints of CosyVoice's own server, for scripts that were written for it.

``/inference_sft``, ``…_zero_shot``, ``…_cross_lingual``, ``…_instruct`` and ``…_instruct2`` take a
form, with GET as well as with POST because the published client sends its form with GET, and answer
with bare 16-bit samples at the model's rate. Fields of the query are ignored, as there: otherwise
any page could make a browser call them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.routing import Route

from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.enrolling import enrol_once
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.json_body import check_chars, read_fields
from cosyvoice_stream.server.prompt_text import instruction, split_prompt
from cosyvoice_stream.server.services import Services, services_of
from cosyvoice_stream.server.speak_response import SpeakResponse
from cosyvoice_stream.server.uploads import receive_upload
from cosyvoice_stream.server.voice_names import find_voice
from cosyvoice_stream.server.wire_settings import SAMPLE_RATES, UtteranceSettings

SPEAKERS: Final = ("中文女", "中文男", "日语男", "粤语女", "英文女", "英文男", "韩语女")
"""Ids of the speakers of CosyVoice's SFT checkpoint."""

_FALLBACK_RATE_HZ: Final = 24_000


@dataclass(frozen=True, slots=True)
class Inference:
    """One request of CosyVoice's own interfaces, over HTTP or gRPC."""

    text: str
    """``tts_text``."""
    speaker: str | None = None
    """``spk_id``; None where a recording is the voice."""
    clip: bytes | Path | None = None
    """The recording."""
    prompt_text: str | None = None
    """What is said in the recording."""
    instruct_text: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be spoken, and the voice that ends with it."""

    text: str
    settings: UtteranceSettings
    temporary: str | None = None


async def prepare(services: Services, wanted: Inference, owner: str | None) -> Prepared:
    """Check a request, and make a voice of its recording.

    Whoever speaks it hands a temporary voice to `VoiceService.forget_temporary` afterwards.

    Raises:
        WrongField: A text is empty.
        VoiceNotFound: There is no such speaker.
        LimitExceeded: The text is too long. See `enrol_once` for more.
    """
    services.readiness.require()
    said, text = split_prompt(wanted.text)
    if not text.strip():
        raise WrongField("tts_text", "tts_text holds no text")
    check_chars(text, services.settings.max_text_chars)
    before_clip, transcript = split_prompt(wanted.prompt_text or "")
    rate = services.engine.info.sample_rate
    settings = UtteranceSettings().merged(
        {
            "instruct": instruction(wanted.instruct_text or "") or said or before_clip,
            "output": {"sample_rate": rate if rate in SAMPLE_RATES else _FALLBACK_RATE_HZ},
        }
    )
    if wanted.clip is None:
        voice = await find_voice(services, wanted.speaker or "", SPEAKERS)
        return Prepared(text, settings.model_copy(update={"voice": voice}))
    voice = await enrol_once(services, wanted.clip, transcript.strip() or None, owner)
    return Prepared(text, settings.model_copy(update={"voice": voice}), voice)


def reference_routes() -> list[Route]:
    """Return the routes of this module."""
    names = (
        inference_sft,
        inference_zero_shot,
        inference_cross_lingual,
        inference_instruct,
        inference_instruct2,
    )
    return [Route(f"/{name.__name__}", name, methods=["GET", "POST"]) for name in names]


async def inference_sft(request: Request) -> SpeakResponse:
    """Speak with one of the server's voices."""
    return await _answer(request, "tts_text", "spk_id")


async def inference_zero_shot(request: Request) -> SpeakResponse:
    """Speak with the voice of a recording whose words are known."""
    return await _answer(request, "tts_text", "prompt_text", "prompt_wav")


async def inference_cross_lingual(request: Request) -> SpeakResponse:
    """Speak with the voice of a recording."""
    return await _answer(request, "tts_text", "prompt_wav")


async def inference_instruct(request: Request) -> SpeakResponse:
    """Speak with one of the server's voices, in a style."""
    return await _answer(request, "tts_text", "spk_id", "instruct_text")


async def inference_instruct2(request: Request) -> SpeakResponse:
    """Speak with the voice of a recording, in a style."""
    return await _answer(request, "tts_text", "instruct_text", "prompt_wav")


async def _answer(request: Request, *required: str) -> SpeakResponse:
    services = services_of(request)
    async with _received(request, services) as (fields, clip):
        there = {*fields, *(() if clip is None else ("prompt_wav",))}
        for field in required:
            if field not in there:
                raise WrongField(field, f"the field {field!r} is missing", missing=True)
        wanted = Inference(
            text=fields["tts_text"],
            speaker=fields.get("spk_id"),
            clip=clip if "prompt_wav" in required else None,
            prompt_text=fields.get("prompt_text") if "prompt_text" in required else None,
            instruct_text=fields.get("instruct_text") if "instruct_text" in required else None,
        )
        prepared = await prepare(services, wanted, caller_key(request.scope))
    ended = None
    if prepared.temporary is not None:
        ended = partial(services.voices.forget_temporary, prepared.temporary)
    return SpeakResponse(services, prepared.text, prepared.settings, ended=ended)


@asynccontextmanager
async def _received(
    request: Request, services: Services
) -> AsyncIterator[tuple[Mapping[str, str], Path | None]]:
    """Receive a form of either kind: its text fields, and the recording if there is one."""
    settings = services.settings
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        yield await read_fields(request, settings.max_text_chars, settings.stall_timeout_s), None
        return
    async with receive_upload(
        request,
        limit_bytes=settings.max_upload_bytes,
        stall_timeout_s=settings.stall_timeout_s,
        known=None,
        file_fields=("prompt_wav",),
        required=False,
    ) as upload:
        yield upload.fields, upload.path if upload.size_bytes else None
