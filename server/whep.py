"""WHEP and WHIP: listen to a call, or be its microphone, with one HTTP request and no JavaScript.

::

    POST /whep/{session}    offer (recvonly)  →  201 answer, Location   what the call hears
    POST /whip/{session}    offer (sendonly)  →  201 answer, Location   its microphone
    PATCH Location          candidates, as they are found
    DELETE Location         good-bye

The session is one that was opened by ``POST /v1/webrtc/offer``. Its packets are encoded once,
however many listen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cosyvoice_stream.errors import InvalidMessage, UnsupportedFormat
from cosyvoice_stream.server.json_body import read_body
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.webrtc import peers_of

if TYPE_CHECKING:
    from cosyvoice_stream.server.rtc_peer import Peer

SDP: Final = "application/sdp"
FRAGMENT: Final = "application/trickle-ice-sdpfrag"
_MAX_BODY_BYTES: Final = 64 * 1024


def whep_routes() -> list[Route]:
    """Return the routes of both protocols."""
    return [
        Route("/whep/{session}", whep_offer, methods=["POST"]),
        Route("/whip/{session}", whip_offer, methods=["POST"]),
        *(
            Route(f"/{name}/{{session}}/{{peer}}", handler, methods=[method], name=f"{name}_{what}")
            for name in ("whep", "whip")
            for method, what, handler in (
                ("PATCH", "candidates", whep_candidates),
                ("DELETE", "goodbye", whep_goodbye),
                ("OPTIONS", "options", whep_options),
            )
        ),
    ]


async def whep_offer(request: Request) -> Response:
    """Let somebody hear what a call hears."""
    call = peers_of(services_of(request)).find_session(request.path_params["session"])

    async def serve(peer: Peer) -> None:
        await call.over.wait()

    return await _answer(request, call, serve, hears=True)


async def whip_offer(request: Request) -> Response:
    """Take a microphone for a call that has none, or another one."""
    call = peers_of(services_of(request)).find_session(request.path_params["session"])

    async def serve(peer: Peer) -> None:
        peer.hear = lambda data: call.hear(data)
        await call.over.wait()

    return await _answer(request, call, serve, hears=False)


async def whep_candidates(request: Request) -> Response:
    """Learn candidates of the peer."""
    _require_type(request, FRAGMENT)
    services = services_of(request)
    peer = peers_of(services).find(request.path_params["peer"])
    if request.headers.get("if-match") == "*":
        return Response(status_code=405, headers={"Allow": "DELETE, PATCH"})  # an ICE restart
    body = await read_body(request, _MAX_BODY_BYTES, services.settings.stall_timeout_s)
    from cosyvoice_stream.server.rtc_trickle import add_candidates

    if not await add_candidates(peer.connection, _text(body)):
        return Response(status_code=422)  # of another ICE session
    return Response(status_code=204)


async def whep_goodbye(request: Request) -> Response:
    """End a listener or a microphone."""
    peers_of(services_of(request)).find(request.path_params["peer"]).over.set()
    return Response(status_code=200)


async def whep_options(request: Request) -> Response:
    """Say that candidates may come later."""
    return Response(
        status_code=204, headers={"Allow": "DELETE, OPTIONS, PATCH", "Accept-Patch": FRAGMENT}
    )


async def _answer(
    request: Request, call: Peer, serve: Callable[[Peer], Awaitable[None]], *, hears: bool
) -> Response:
    from cosyvoice_stream.server.rtc_ice import link_header

    _require_type(request, SDP)
    services = services_of(request)
    peers = peers_of(services)
    body = await read_body(request, _MAX_BODY_BYTES, services.settings.stall_timeout_s)
    source = call.track if hears else None
    peer, answer = await peers.answer(
        _text(body), serve, speaks=hears, channel=False, source=source
    )
    peer.session_id = call.session_id
    headers = {
        "Location": f"{request.url.path}/{peer.id}",
        "ETag": f'"{hashlib.sha256(peer.id.encode()).hexdigest()[:16]}"',
        "Accept-Patch": FRAGMENT,
    }
    if links := link_header(peers.ice_servers()):
        headers["Link"] = links
    return Response(answer, status_code=201, media_type=SDP, headers=headers)


def _require_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise UnsupportedFormat("the body has another type", how_to_fix=f"send {wanted}")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidMessage("the body is not text", how_to_fix="send UTF-8") from None
