"""The routes of ElevenLabs' sockets: reads their queries, then runs a session with their codec."""

from __future__ import annotations

from typing import Any, Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.server.elevenlabs_codec import MultiStreamCodec, StreamInputCodec
from cosyvoice_stream.server.elevenlabs_format import PREMADE, speech_changes
from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.error_shapes import WrongField, elevenlabs_error
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.vendor_paths import ELEVENLABS
from cosyvoice_stream.server.vendor_socket import serve_codec
from cosyvoice_stream.server.voice_names import find_voice

_INACTIVITY_S: Final = (1, 20, 180)
"""Shortest, default and longest wait for a message."""
_POLICY: Final = 1008


def elevenlabs_socket_routes() -> list[WebSocketRoute]:
    """Return the routes of this module."""
    base = ELEVENLABS + "/v1/text-to-speech/{voice_id}"
    return [
        WebSocketRoute(base + "/stream-input", elevenlabs_stream_input),
        WebSocketRoute(base + "/multi-stream-input", elevenlabs_multi_stream_input),
    ]


async def elevenlabs_stream_input(websocket: WebSocket) -> None:
    """Speak one text that comes in pieces."""
    await _serve(websocket, StreamInputCodec)


async def elevenlabs_multi_stream_input(websocket: WebSocket) -> None:
    """Speak texts that come in pieces, each under an id of its own."""
    await _serve(websocket, MultiStreamCodec)


async def _serve(
    websocket: WebSocket, codec: type[StreamInputCodec] | type[MultiStreamCodec]
) -> None:
    try:
        options = await _options(websocket)
        patience_s = _inactivity_s(websocket.query_params.get("inactivity_timeout"))
    except VoiceStreamError as error:
        # Their clients expect what is wrong with a query on the socket, not in the handshake.
        said = elevenlabs_error(error_json(error))
        await websocket.accept()
        wrong = {"message": said["message"], "error": said["status"], "code": _POLICY}
        await websocket.send_json(wrong)
        await websocket.close(_POLICY, said["status"])
        return
    await serve_codec(websocket, codec(options, patience_s))


async def _options(websocket: WebSocket) -> dict[str, Any]:
    query = websocket.query_params
    seed = query.get("seed", "")
    if seed and not (seed.isdecimal() and seed.isascii() and len(seed) <= 18):
        raise WrongField("seed", "seed is not a whole number")
    asked = websocket.path_params["voice_id"]
    return speech_changes(
        voice=await find_voice(services_of(websocket), asked, PREMADE),
        output_format=query.get("output_format"),
        language=query.get("language_code"),
        seed=int(seed) if seed else None,
        normalization=query.get("apply_text_normalization"),
        voice_settings=None,
    )


def _inactivity_s(value: str | None) -> float:
    shortest, default, longest = _INACTIVITY_S
    if value is None:
        return default
    if not (value.isdecimal() and value.isascii() and shortest <= int(value[:9]) <= longest):
        raise WrongField(
            "inactivity_timeout",
            f"inactivity_timeout is not a whole number from {shortest} to {longest}",
        )
    return int(value)
