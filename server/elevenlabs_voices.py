"""ElevenLabs' voices, models and account, as far as clients ask before they speak."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.elevenlabs_format import PREMADE
from cosyvoice_stream.server.enrolling import enrol_counted
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.json_body import parse_values
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.uploads import receive_upload
from cosyvoice_stream.server.vendor_paths import ELEVENLABS
from cosyvoice_stream.server.voice_info import MAX_NAME_CHARS, EnrolRequest, VoiceInfo
from cosyvoice_stream.server.voice_names import find_voice

_PAGE: Final = 10
_MAX_PAGE: Final = 100
MODELS: Final = ("eleven_flash_v2_5", "eleven_turbo_v2_5", "eleven_multilingual_v2")
"""Other names of the one engine."""
_VOICE_SETTINGS: Final = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": True,
    "speed": 1.0,
}
_UNLIMITED: Final = 2_000_000_000


class NewVoice(BaseModel):
    """The text fields of a voice; what is not here has no effect."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True, str_strip_whitespace=True)

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


def elevenlabs_voice_routes() -> list[Route]:
    """Return the routes of this module."""
    base = ELEVENLABS + "/v1"
    return [
        Route(base + "/voices", elevenlabs_voices, methods=["GET"]),
        Route(ELEVENLABS + "/v2/voices", elevenlabs_voice_pages, methods=["GET"]),
        Route(base + "/voices/add", elevenlabs_add_voice, methods=["POST"]),
        Route(base + "/voices/settings/default", elevenlabs_default_settings, methods=["GET"]),
        Route(base + "/voices/{voice_id}", elevenlabs_voice, methods=["GET"]),
        Route(base + "/voices/{voice_id}", elevenlabs_delete_voice, methods=["DELETE"]),
        Route(base + "/voices/{voice_id}/settings", elevenlabs_voice_settings, methods=["GET"]),
        Route(base + "/models", elevenlabs_models, methods=["GET"]),
        Route(base + "/user", elevenlabs_user, methods=["GET"]),
        Route(base + "/user/subscription", elevenlabs_subscription, methods=["GET"]),
    ]


async def elevenlabs_voices(request: Request) -> JSONResponse:
    """List all voices."""
    voices = await services_of(request).voices.list()
    return JSONResponse({"voices": [_described(voice) for voice in voices]})


async def elevenlabs_voice_pages(request: Request) -> JSONResponse:
    """List the voices whose names hold a text, a page at a time."""
    query = request.query_params
    size = _count(query.get("page_size"), "page_size", _PAGE, 1, _MAX_PAGE)
    first = _count(query.get("next_page_token"), "next_page_token", 0, 0, 10**6)
    wanted = query.get("search", "").strip().lower()
    voices = [v for v in await services_of(request).voices.list() if wanted in v.name.lower()]
    page = voices[first : first + size]
    more = len(voices) > first + len(page)
    return JSONResponse(
        {
            "voices": [_described(voice) for voice in page],
            "has_more": more,
            "total_count": len(voices),
            "next_page_token": str(first + len(page)) if more else None,
        }
    )


async def elevenlabs_voice(request: Request) -> JSONResponse:
    """Describe one voice; one of their own names stands for the default voice."""
    services = services_of(request)
    asked = request.path_params["voice_id"]
    found = await find_voice(services, asked, PREMADE)
    voice = await services.voices.info(found or services.engine.info.voices[0].voice_id)
    return JSONResponse({**_described(voice), "voice_id": asked})


async def elevenlabs_add_voice(request: Request) -> JSONResponse:
    """Make a voice from a recording."""
    services = services_of(request)
    services.readiness.require()
    async with receive_upload(
        request,
        limit_bytes=services.settings.max_upload_bytes,
        stall_timeout_s=services.settings.stall_timeout_s,
        known=None,
        file_fields=("files", "files[]"),
    ) as upload:
        fields = parse_values(NewVoice, dict(upload.fields))
        wanted = EnrolRequest(fields.name, owner=caller_key(request.scope))
        made = await enrol_counted(services, upload.path, wanted)
    return JSONResponse({"voice_id": made.voice.voice_id, "requires_verification": False})


async def elevenlabs_delete_voice(request: Request) -> JSONResponse:
    """Delete a stored voice."""
    await services_of(request).voices.delete(request.path_params["voice_id"])
    return JSONResponse({"status": "ok"})


async def elevenlabs_voice_settings(request: Request) -> JSONResponse:
    """Say what a request for one voice without `voice_settings` has."""
    return JSONResponse(_VOICE_SETTINGS)


async def elevenlabs_default_settings(request: Request) -> JSONResponse:
    """Say what a request without `voice_settings` has."""
    return JSONResponse(_VOICE_SETTINGS)


async def elevenlabs_models(request: Request) -> JSONResponse:
    """List the engine, then its other names."""
    services = services_of(request)
    info = services.engine.info
    languages = [{"language_id": tag, "name": tag} for tag in info.languages]
    limit = services.settings.max_text_chars
    models = [
        {
            "model_id": name,
            "name": name,
            "description": info.description,
            "can_do_text_to_speech": True,
            "can_do_voice_conversion": False,
            "can_be_finetuned": False,
            "can_use_style": False,
            "can_use_speaker_boost": False,
            "serves_pro_voices": False,
            "token_cost_factor": 1.0,
            "requires_alpha_access": False,
            "max_characters_request_free_user": limit,
            "max_characters_request_subscribed_user": limit,
            "maximum_text_length_per_request": limit,
            "languages": languages,
        }
        for name in (info.name, *MODELS)
    ]
    return JSONResponse(models)


async def elevenlabs_user(request: Request) -> JSONResponse:
    """Describe an account that nothing is counted for."""
    user = {"user_id": "cosyvoice-stream", "is_new_user": False, "is_onboarding_completed": True}
    more = {"xi_api_key": "", "can_use_delayed_payment_methods": False, "created_at": 0}
    return JSONResponse({**user, **more, "subscription": _subscription(request)})


async def elevenlabs_subscription(request: Request) -> JSONResponse:
    """Describe a plan without a bound."""
    return JSONResponse(_subscription(request))


def _subscription(request: Request) -> dict[str, Any]:
    return {
        "tier": "local",
        "character_count": 0,
        "character_limit": _UNLIMITED,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "voice_slots_used": 0,
        "professional_voice_slots_used": 0,
        "professional_voice_limit": 0,
        "voice_add_edit_counter": 0,
        "voice_limit": services_of(request).settings.max_voices,
        "can_extend_voice_limit": False,
        "can_use_instant_voice_cloning": True,
        "can_use_professional_voice_cloning": False,
        "status": "active",
        "has_open_invoices": False,
        "open_invoices": [],
    }


def _count(value: str | None, field: str, default: int, low: int, high: int) -> int:
    if value is None:
        return default
    if not (value.isdecimal() and value.isascii() and low <= int(value[:9]) <= high):
        raise WrongField(field, f"{field} is not a whole number from {low} to {high}")
    return int(value)


def _described(voice: VoiceInfo) -> dict[str, Any]:
    created = datetime.fromisoformat(voice.created_at) if voice.created_at else None
    builtin = voice.kind == "builtin"
    return {
        "voice_id": voice.voice_id,
        "name": voice.name,
        "samples": None,
        "category": "premade" if builtin else "cloned",
        "labels": {},
        "description": None,
        "preview_url": None,
        "available_for_tiers": [],
        "settings": _VOICE_SETTINGS,
        "high_quality_base_model_ids": [],
        "verified_languages": [],
        "is_owner": not builtin,
        "created_at_unix": int(created.timestamp()) if created else None,
    }
