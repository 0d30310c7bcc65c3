"""The HTTP routes of docs/protocol.md: health, voices, one-shot speech."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyvoice_stream.errors import (
    InvalidMessage,
    InvalidState,
    PeerGone,
    VoiceStreamError,
)
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.enrolling import enrol_counted
from cosyvoice_stream.server.error_map import error_json, http_status, log_internal
from cosyvoice_stream.server.error_shapes import shaped
from cosyvoice_stream.server.json_body import check_chars, read_text_request
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.services import services_of, session_limits
from cosyvoice_stream.server.sessions import engine_summary
from cosyvoice_stream.server.speak_response import SpeakResponse
from cosyvoice_stream.server.uploads import receive_upload
from cosyvoice_stream.server.voice_service import EnrolRequest
from cosyvoice_stream.server.wire import (
    ENCODINGS,
    PROTOCOL,
    SAMPLE_RATES,
    UtteranceSettings,
    parse_speech,
)
from cosyvoice_stream.streaming.ssml import check_ssml
from cosyvoice_stream.version import __version__

logger = logging.getLogger(__name__)

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})
_VOICE_FIELDS: Final = frozenset({"name", "transcript", "consent", "persist"})


def api_routes() -> list[Route]:
    """Return the routes of docs/protocol.md but the WebSocket."""
    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/info", info),
        Route("/v1/voices", list_voices, methods=["GET"]),
        Route("/v1/voices", create_voice, methods=["POST"]),
        Route("/v1/voices/{voice_id}", get_voice, methods=["GET"]),
        Route("/v1/voices/{voice_id}", delete_voice, methods=["DELETE"]),
        Route("/v1/speak", speak, methods=["POST"]),
    ]


def exception_handlers() -> Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """Return what turns exceptions into the errors of docs/protocol.md."""
    return {
        VoiceStreamError: _answer_error,
        HTTPException: _answer_http_error,
    }


async def healthz(request: Request) -> Response:
    """Say that the process lives."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Say whether the server takes work."""
    state = services_of(request).readiness.state
    return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)


async def metrics(request: Request) -> Response:
    """Return the Prometheus series."""
    text = services_of(request).metrics.render()
    return Response(text, headers={"Content-Type": Metrics.CONTENT_TYPE})


async def info(request: Request) -> Response:
    """Describe the server."""
    services = services_of(request)
    return JSONResponse(
        {
            "name": "cosyvoice-stream",
            "version": __version__,
            "protocol": PROTOCOL,
            "engine": engine_summary(services.engine.info).model_dump(),
            "limits": {
                **session_limits(services.settings).model_dump(),
                "max_upload_bytes": services.settings.max_upload_bytes,
            },
            "encodings": list(ENCODINGS),
            "sample_rates": list(SAMPLE_RATES),
        }
    )


async def list_voices(request: Request) -> Response:
    """List the built-in and the stored voices."""
    voices = await services_of(request).voices.list()
    return JSONResponse({"voices": [voice.to_json() for voice in voices]})


async def get_voice(request: Request) -> Response:
    """Describe one voice."""
    voice = await services_of(request).voices.info(request.path_params["voice_id"])
    return JSONResponse(voice.to_json())


async def delete_voice(request: Request) -> Response:
    """Delete a stored voice and everything made from it."""
    try:
        await services_of(request).voices.delete(request.path_params["voice_id"])
    except InvalidState as error:  # a built-in voice: forbidden for good, not a matter of time
        return JSONResponse({"error": error_json(error)}, status_code=403)
    return Response(status_code=204)


async def create_voice(request: Request) -> Response:
    """Make a voice from an uploaded recording."""
    services = services_of(request)
    services.readiness.require()
    async with receive_upload(
        request,
        limit_bytes=services.settings.max_upload_bytes,
        stall_timeout_s=services.settings.stall_timeout_s,
        known=_VOICE_FIELDS,
    ) as upload:
        wanted = EnrolRequest(
            name=upload.fields.get("name"),
            transcript=upload.fields.get("transcript"),
            consent=upload.fields.get("consent"),
            persist=_flag(upload.fields, "persist", default=True),
            owner=caller_key(request.scope),
        )
        made = await enrol_counted(services, upload.path, wanted)
    return JSONResponse(
        {
            "voice": made.voice.to_json(),
            "quality": made.quality,
            "transcript": made.transcript,
            "warnings": made.warnings,
        },
        status_code=201,
    )


async def speak(request: Request) -> Response:
    """Speak a text; audio follows while it is made."""
    services = services_of(request)
    services.readiness.require()
    limit = services.settings.max_text_chars
    body = await read_text_request(request, limit, services.settings.stall_timeout_s)
    wanted = parse_speech(body)
    check_chars(wanted.text, limit)
    settings = UtteranceSettings().merged(wanted.changes())
    if settings.ssml:
        check_ssml(wanted.text)
    return SpeakResponse(services, wanted.text, settings)


def _flag(fields: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = fields.get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise InvalidMessage(f"the field {name!r} is wrong", how_to_fix="use true or false")


async def _answer_error(request: Request, error: Exception) -> Response:
    """Render an error in the shape of the path."""
    if isinstance(error, PeerGone):
        return Response(status_code=400)  # nobody reads it
    body = error_json(error)
    services_of(request).metrics.refused(body["code"])
    headers = {}
    if "retry_after_ms" in body:
        headers["Retry-After"] = str(math.ceil(body["retry_after_ms"] / 1000))
    status, shape = shaped(request.scope["path"], http_status(error), body, error)
    return JSONResponse(shape, status_code=status, headers=headers)


async def answer_unexpected(request: Request, error: Exception) -> Response:
    """Log an error that is our fault, without its text, and answer without details."""
    log_internal(logger, error)
    status, shape = shaped(request.scope["path"], http_status(error), error_json(error))
    return JSONResponse(shape, status_code=status)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Render what the router refused: an unknown path, a method that a path does not have."""
    assert isinstance(error, HTTPException)
    body = {"code": "invalid_message", "message": error.detail.lower()}
    status, shape = shaped(request.scope["path"], error.status_code, body)
    return JSONResponse(shape, status_code=status, headers=error.headers)
