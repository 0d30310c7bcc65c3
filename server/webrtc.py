"""Calls over WebRTC: the HTTP side.

``POST /v1/webrtc/offer`` trades descriptions; then the data channel speaks docs/protocol.md and the
audio has its tracks. aiortc is optional: without it these routes say how to install it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.error_map import NotInstalled
from cosyvoice_stream.server.json_body import parse_body, read_body
from cosyvoice_stream.server.services import Services, services_of
from cosyvoice_stream.server.sessions import new_session_id
from cosyvoice_stream.server.settings import Settings

if TYPE_CHECKING:
    from cosyvoice_stream.server.rtc_peer import Peer
    from cosyvoice_stream.server.rtc_peers import Peers

_MAX_BODY_BYTES: Final = 128 * 1024


class _Offer(BaseModel):
    """Body of ``POST /v1/webrtc/offer``: the browser's ``RTCSessionDescription`` as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    type: Literal["offer"]
    sdp: Annotated[str, Field(max_length=64 * 1024)]


def make_peers(settings: Settings) -> Peers | None:
    """Return the peers of an application, or None where aiortc is not installed.

    Raises:
        ConfigError: An ICE server cannot be read.
    """
    try:
        from cosyvoice_stream.server.rtc_peers import Peers
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiortc", "aioice", "pylibsrtp", "pyee"):
            raise
        return None
    return Peers(settings)


def webrtc_routes() -> list[Route]:
    """Return the routes of calls."""
    return [
        Route("/v1/webrtc", webrtc_info, methods=["GET"]),
        Route("/v1/webrtc/offer", webrtc_offer, methods=["POST"]),
        Route("/v1/webrtc/stats", webrtc_stats, methods=["GET"]),
    ]


async def webrtc_info(request: Request) -> Response:
    """Say whether calls are possible, and what a browser's ``RTCPeerConnection`` needs."""
    peers = services_of(request).peers
    if peers is None:
        return JSONResponse({"available": False, "ice_servers": []})
    from cosyvoice_stream.server.rtc_ice import browser_json

    return JSONResponse({"available": True, "ice_servers": browser_json(peers.ice_servers())})


async def webrtc_offer(request: Request) -> Response:
    """Answer an offer with a data channel; the session begins when that is open."""
    services = services_of(request)
    peers = peers_of(services)
    services.readiness.require()
    body = await read_body(request, _MAX_BODY_BYTES, services.settings.stall_timeout_s)
    offer = parse_body(_Offer, body)
    key = caller_key(request.scope)
    services.sessions.check_room(key)
    session_id = new_session_id()

    async def serve(peer: Peer) -> None:
        from cosyvoice_stream.server.rtc_track import TRACK_OUTPUT
        from cosyvoice_stream.server.rtc_transport import CallTransport

        assert peer.audio is not None
        channel = await peer.channel
        transport = CallTransport(channel, peer.audio, peer.rtp_origin)
        peer.on_frame, peer.hear = transport.frame_leaves, transport.hear
        services.sessions.check_room(key)
        await services.sessions.serve(
            transport, raw_framing=False, key=key, fixed_output=TRACK_OUTPUT, session_id=session_id
        )

    peer, answer = await peers.answer(offer.sdp, serve, speaks=True, channel=True)
    peer.session_id = session_id
    description = {"type": "answer", "sdp": answer, "session": session_id}
    return JSONResponse(description, status_code=201)


async def webrtc_stats(request: Request) -> Response:
    """Describe every live call."""
    calls: list[dict[str, Any]] = await peers_of(services_of(request)).stats()
    return JSONResponse({"calls": calls})


def peers_of(services: Services) -> Peers:
    """Return the peers of an application.

    Raises:
        NotInstalled: There can be none.
    """
    if services.peers is None:
        raise NotInstalled("WebRTC", "webrtc")
    return services.peers
