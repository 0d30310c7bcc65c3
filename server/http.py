"""The HTTP routes of docs/protocol.md: health, voices, one-shot speech."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyvoice_stream.errors import (
    EnrolmentRejected,
    InvalidMessage,
    InvalidState,
    LimitExceeded,
    PeerGone,
    VoiceStreamError,
)
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.error_map import error_json, http_status, log_internal
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.services import Services, session_limits
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
from cosyvoice_stream.version import __version__

logger = logging.getLogger(__name__)

_BYTES_PER_CHAR: Final = 12
"""Longest JSON form of one character: a surrogate pair of two ``\\uXXXX`` escapes."""
_OPTIONS_BYTES: Final = 16 * 1024
"""For everything in a speak request but its text."""
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


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def healthz(request: Request) -> Response:
    """Say that the process lives."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Say whether the server takes work."""
    state = _services(request).readiness.state
    return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)


async def metrics(request: Request) -> Response:
    """Return the Prometheus series."""
    text = _services(request).metrics.render()
    return Response(text, headers={"Content-Type": Metrics.CONTENT_TYPE})


async def info(request: Request) -> Response:
    """Describe the server."""
    services = _services(request)
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
    voices = await _services(request).voices.list()
    return JSONResponse({"voices": [voice.to_json() for voice in voices]})


async def get_voice(request: Request) -> Response:
    """Describe one voice."""
    voice = await _services(request).voices.info(request.path_params["voice_id"])
    return JSONResponse(voice.to_json())


async def delete_voice(request: Request) -> Response:
    """Delete a stored voice and everything made from it."""
    try:
        await _services(request).voices.delete(request.path_params["voice_id"])
    except InvalidState as error:  # a built-in voice: forbidden for good, not a matter of time
        return JSONResponse({"error": error_json(error)}, status_code=403)
    return Response(status_code=204)


async def create_voice(request: Request) -> Response:
    """Make a voice from an uploaded recording."""
    services = _services(request)
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
        try:
            made = await services.voices.enrol_file(upload.path, wanted)
        except VoiceStreamError as error:
            rejected = isinstance(error, EnrolmentRejected)
            services.metrics.enrolment("rejected" if rejected else "failed")
            raise
    services.metrics.enrolment("accepted")
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
    services = _services(request)
    services.readiness.require()
    limit = services.settings.max_text_chars
    body = await _read_body(
        request, limit * _BYTES_PER_CHAR + _OPTIONS_BYTES, services.settings.stall_timeout_s
    )
    wanted = parse_speech(body)
    if len(wanted.text) > limit:
        raise LimitExceeded("characters of text in one request", limit, len(wanted.text))
    settings = UtteranceSettings().merged(wanted.changes())
    return SpeakResponse(services, wanted.text, settings)


async def _read_body(request: Request, limit_bytes: int, stall_timeout_s: float) -> bytes:
    """Read a small body completely.

    Raises:
        LimitExceeded: It is too large.
        InvalidMessage: It does not arrive.
        PeerGone: The client went away.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit_bytes:
        raise LimitExceeded("bytes of JSON", limit_bytes, int(stated))
    body = bytearray()
    more = True
    while more:
        try:
            async with asyncio.timeout(stall_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise InvalidMessage("the request did not arrive completely") from None
        if message["type"] == "http.disconnect":
            raise PeerGone("the client went away during a request")
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise LimitExceeded("bytes of JSON", limit_bytes)
        more = message.get("more_body", False)
    return bytes(body)


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
    """Render an error of docs/protocol.md."""
    if isinstance(error, PeerGone):
        return Response(status_code=400)  # nobody reads it
    body = error_json(error)
    _services(request).metrics.refused(body["code"])
    headers = {}
    if "retry_after_ms" in body:
        headers["Retry-After"] = str(math.ceil(body["retry_after_ms"] / 1000))
    return JSONResponse({"error": body}, status_code=http_status(error), headers=headers)


async def answer_unexpected(request: Request, error: Exception) -> Response:
    """Log an error that is our fault, without its text, and answer without details."""
    log_internal(logger, error)
    return JSONResponse({"error": error_json(error)}, status_code=http_status(error))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Render what the router refused: an unknown path, a method that a path does not have."""
    assert isinstance(error, HTTPException)
    body = {"code": "invalid_message", "message": error.detail.lower()}
    return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)
