"""OpenAI's voices and voice consents, with what its imitators add: a list, and deletion by name."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cosyvoice_stream.errors import InvalidState, VoiceNotFound
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.consents import Consent, ConsentStore
from cosyvoice_stream.server.enrolling import enrol_counted
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.json_body import parse_body, parse_values, read_body
from cosyvoice_stream.server.services import Services, services_of
from cosyvoice_stream.server.uploads import Upload, receive_upload
from cosyvoice_stream.server.voice_info import MAX_NAME_CHARS, EnrolRequest, VoiceInfo
from cosyvoice_stream.server.voice_names import find_voice

_CONSENT_BYTES: Final = 10 * 1024 * 1024
_NAME_BYTES: Final = 16 * 1024
_PAGE: Final = 20
_MAX_PAGE: Final = 100

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class _Fields(BaseModel):
    model_config = ConfigDict(
        extra="ignore",
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        use_attribute_docstrings=True,
    )


class ConsentFields(_Fields):
    """The text fields of a consent."""

    name: Name
    language: Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")]


class ConsentChange(_Fields):
    """What of a consent can be changed."""

    name: Name


class VoiceFields(_Fields):
    """The text fields of a voice."""

    name: Name
    type: str = "audio_sample"
    consent: str | None = None
    """Id of a consent, or a statement in words."""
    ref_text: str | None = None
    """Not OpenAI's: what is said in the sample."""


def openai_voice_routes() -> list[Route]:
    """Return the routes of this module."""
    consents = "/v1/audio/voice_consents"
    return [
        Route("/v1/audio/voices", openai_list_voices, methods=["GET"]),
        Route("/v1/audio/voices", openai_create_voice, methods=["POST"]),
        Route("/v1/audio/voices/{voice}", openai_delete_voice, methods=["DELETE"]),
        Route(consents, openai_list_consents, methods=["GET"]),
        Route(consents, openai_create_consent, methods=["POST"]),
        Route(consents + "/{consent}", openai_get_consent, methods=["GET"]),
        Route(consents + "/{consent}", openai_rename_consent, methods=["POST"]),
        Route(consents + "/{consent}", openai_delete_consent, methods=["DELETE"]),
    ]


async def openai_list_voices(request: Request) -> JSONResponse:
    """List the ids of all voices, and more of those that were made from recordings."""
    voices = await services_of(request).voices.list()
    made = [_described(voice) for voice in voices if voice.kind != "builtin"]
    return JSONResponse({"voices": [voice.voice_id for voice in voices], "uploaded_voices": made})


async def openai_create_voice(request: Request) -> JSONResponse:
    """Make a voice from a sample."""
    services = services_of(request)
    services.readiness.require()
    if request.headers.get("content-type", "").startswith("application/json"):
        raise _no_design()
    async with receive_upload(
        request,
        limit_bytes=services.settings.max_upload_bytes,
        stall_timeout_s=services.settings.stall_timeout_s,
        known=None,
        file_fields=("audio_sample",),
        required=False,
    ) as upload:
        fields = parse_values(VoiceFields, dict(upload.fields))
        if fields.type != "audio_sample":
            raise _no_design()
        _require_file(upload, "audio_sample")
        owner = caller_key(request.scope)
        consent = fields.consent
        if consent is not None and consent.startswith("cons_"):
            found = await asyncio.to_thread(services.consents.get, consent, owner)
            consent = found.statement
        wanted = EnrolRequest(fields.name, fields.ref_text, consent, owner=owner)
        made = await enrol_counted(services, upload.path, wanted)
    voice = _described(made.voice)
    return JSONResponse({**voice, "success": True, "voice": voice, "warnings": made.warnings})


async def openai_delete_voice(request: Request) -> JSONResponse:
    """Delete a voice by its id or its name."""
    services = services_of(request)
    asked = request.path_params["voice"]
    voice_id = await find_voice(services, asked)
    if voice_id is None:
        raise VoiceNotFound(asked)
    try:
        await services.voices.delete(voice_id)
    except InvalidState as error:
        raise WrongField("voice_id", str(error), how_to_fix=error.how_to_fix) from None
    return JSONResponse({"id": voice_id, "deleted": True, "object": "audio.voice.deleted"})


async def openai_create_consent(request: Request) -> JSONResponse:
    """Keep a recorded statement of consent."""
    services = services_of(request)
    async with receive_upload(
        request,
        limit_bytes=min(_CONSENT_BYTES, services.settings.max_upload_bytes),
        stall_timeout_s=services.settings.stall_timeout_s,
        known=None,
        file_fields=("recording",),
        required=False,
    ) as upload:
        fields = parse_values(ConsentFields, dict(upload.fields))
        _require_file(upload, "recording")
        owner = caller_key(request.scope)
        consent = await asyncio.to_thread(_keep_consent, services, upload.path, fields, owner)
    return JSONResponse(_consent_json(consent))


def _keep_consent(
    services: Services, path: Path, fields: ConsentFields, owner: str | None
) -> Consent:
    """Check that a file is a recording, and keep it. Blocks."""
    from cosyvoice_stream.decode import decode_audio

    decode_audio(path, max_seconds=services.settings.max_reference_s)
    return services.consents.add(
        path.read_bytes(),
        name=fields.name,
        language=fields.language,
        owner=owner,
        now=time.time(),
    )


async def openai_list_consents(request: Request) -> JSONResponse:
    """List the consents that were uploaded with the same key, a page at a time."""
    query = request.query_params
    limit = query.get("limit", str(_PAGE))
    if not (limit.isdecimal() and limit.isascii() and 1 <= int(limit[:9]) <= _MAX_PAGE):
        raise WrongField("limit", f"limit is not a whole number from 1 to {_MAX_PAGE}")
    store, owner = _consents(request)
    consents = await asyncio.to_thread(store.list, owner)
    after = query.get("after")
    if after:
        places = [i for i, consent in enumerate(consents) if consent.consent_id == after]
        if not places:
            raise WrongField("after", "no consent has the id in 'after'")
        consents = consents[places[0] + 1 :]
    page = consents[: int(limit)]
    return JSONResponse(
        {
            "object": "list",
            "data": [_consent_json(consent) for consent in page],
            "first_id": page[0].consent_id if page else None,
            "last_id": page[-1].consent_id if page else None,
            "has_more": len(consents) > len(page),
        }
    )


async def openai_get_consent(request: Request) -> JSONResponse:
    """Describe one consent."""
    store, owner = _consents(request)
    return JSONResponse(_consent_json(await asyncio.to_thread(store.get, _id(request), owner)))


async def openai_rename_consent(request: Request) -> JSONResponse:
    """Give a consent another name."""
    store, owner = _consents(request)
    timeout_s = services_of(request).settings.stall_timeout_s
    wanted = parse_body(ConsentChange, await read_body(request, _NAME_BYTES, timeout_s))
    consent = await asyncio.to_thread(store.rename, _id(request), wanted.name, owner)
    return JSONResponse(_consent_json(consent))


async def openai_delete_consent(request: Request) -> JSONResponse:
    """Delete a consent with its recording."""
    store, owner = _consents(request)
    await asyncio.to_thread(store.delete, _id(request), owner)
    return JSONResponse({"id": _id(request), "deleted": True, "object": "audio.voice_consent"})


def _consents(request: Request) -> tuple[ConsentStore, str | None]:
    return services_of(request).consents, caller_key(request.scope)


def _id(request: Request) -> str:
    consent: str = request.path_params["consent"]
    return consent


def _require_file(upload: Upload, field: str) -> None:
    if not upload.size_bytes:
        raise WrongField(field, f"the form field {field!r} holds no recording")


def _no_design() -> WrongField:
    return WrongField(
        "type",
        "voices cannot be made from a description here",
        how_to_fix="use the type audio_sample, in a multipart form",
    )


def _consent_json(consent: Consent) -> dict[str, Any]:
    return {
        "id": consent.consent_id,
        "object": "audio.voice_consent",
        "created_at": consent.created_at,
        "language": consent.language,
        "name": consent.name,
    }


def _described(voice: VoiceInfo) -> dict[str, Any]:
    created = datetime.fromisoformat(voice.created_at) if voice.created_at else None
    return {
        "id": voice.voice_id,
        "object": "audio.voice",
        "created_at": int(created.timestamp()) if created else 0,
        "name": voice.name,
        "type": "audio_sample",
        "consent": voice.consent,
        "ref_text": voice.transcript,
    }
