"""DashScope's routes for CosyVoice: the socket, and voices from recordings."""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from cosyvoice_stream.errors import LimitExceeded
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.dashscope_codec import DashScopeCodec
from cosyvoice_stream.server.enrolling import enrol_counted
from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.json_body import parse_body, read_body
from cosyvoice_stream.server.services import Services, services_of
from cosyvoice_stream.server.vendor_socket import serve_codec
from cosyvoice_stream.server.voice_info import EnrolRequest, VoiceInfo

_SOCKET: Final = "/api-ws/v1/inference"
_CUSTOMIZATION: Final = "/api/v1/services/audio/tts/customization"
_OPTIONS_BYTES: Final = 16 * 1024


class _FromClient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)


class EnrolmentInput(_FromClient):
    """What is to be done with voices; what is not here has no effect."""

    action: Literal["create_voice", "list_voice", "query_voice", "update_voice", "delete_voice"]
    target_model: Annotated[str, Field(max_length=256)] | None = None
    prefix: Annotated[str, Field(pattern=r"^[a-z0-9]{0,10}$")] | None = None
    """Becomes the name of the voice."""
    url: str | None = None
    """``data:audio/…;base64,…``"""
    voice_id: Annotated[str, Field(max_length=128)] | None = None
    page_index: Annotated[int, Field(ge=0)] = 0
    page_size: Annotated[int, Field(ge=1, le=1000)] = 10


class EnrolmentBody(_FromClient):
    """A request about voices."""

    model: str | None = None
    input: EnrolmentInput


def dashscope_routes() -> list[BaseRoute]:
    """Return the routes of this module."""
    return [
        WebSocketRoute(_SOCKET, dashscope_socket),
        WebSocketRoute(_SOCKET + "/", dashscope_socket),
        Route(_CUSTOMIZATION, dashscope_voices, methods=["POST"]),
    ]


async def dashscope_socket(websocket: WebSocket) -> None:
    """Speak tasks, one after the other."""
    await serve_codec(websocket, DashScopeCodec(services_of(websocket).settings.aliases))


async def dashscope_voices(request: Request) -> JSONResponse:
    """Make, list, describe and delete voices."""
    services = services_of(request)
    settings = services.settings
    limit = settings.max_upload_bytes * 4 // 3 + _OPTIONS_BYTES
    body = await read_body(request, limit, settings.stall_timeout_s)
    wanted = parse_body(EnrolmentBody, body).input
    request_id = str(uuid.uuid4())
    output = await _output(services, wanted, caller_key(request.scope))
    return JSONResponse(
        {"output": output, "usage": {"count": 1}, "request_id": request_id},
        headers={"X-Dashscope-Request-Id": request_id},
    )


async def _output(services: Services, wanted: EnrolmentInput, owner: str | None) -> dict[str, Any]:
    if wanted.action == "create_voice":
        services.readiness.require()
        data = _recording(wanted.url, services.settings.max_upload_bytes)
        made = await enrol_counted(services, data, EnrolRequest(wanted.prefix, owner=owner))
        return {"voice_id": made.voice.voice_id}
    if wanted.action == "list_voice":
        voices = [voice for voice in await services.voices.list() if voice.kind != "builtin"]
        voices = [voice for voice in voices if voice.name.startswith(wanted.prefix or "")]
        first = wanted.page_index * wanted.page_size
        return {"voice_list": [_listed(v) for v in voices[first : first + wanted.page_size]]}
    if wanted.action == "update_voice":
        raise WrongField("action", "a voice cannot be changed", how_to_fix="make another one")
    if wanted.voice_id is None:
        raise WrongField("voice_id", "the field 'voice_id' is missing", missing=True)
    if wanted.action == "delete_voice":
        await services.voices.delete(wanted.voice_id)
        return {}
    voice = await services.voices.info(wanted.voice_id)
    return {**_listed(voice), "target_model": voice.engine, "resource_link": ""}


def _recording(url: str | None, limit_bytes: int) -> bytes:
    """Return what a ``data:`` URL holds.

    Raises:
        WrongField: It is another URL: a server that fetches what it is told reaches more than the
            client does.
        LimitExceeded: It is too large.
    """
    kind, _, text = (url or "").partition(",")
    if not (kind.startswith("data:") and kind.endswith(";base64")):
        raise WrongField(
            "url",
            "recordings are not fetched from other servers here",
            how_to_fix="send the recording itself: data:audio/wav;base64,…",
        )
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise WrongField("url", "the recording is no base64") from None
    if len(data) > limit_bytes:
        raise LimitExceeded("bytes of recording", limit_bytes, len(data))
    return data


def _listed(voice: VoiceInfo) -> dict[str, Any]:
    created = datetime.fromisoformat(voice.created_at) if voice.created_at else None
    when = created.strftime("%Y-%m-%d %H:%M:%S") if created else ""
    return {
        "voice_id": voice.voice_id,
        "gmt_create": when,
        "gmt_modified": when,
        "status": "OK",
    }
