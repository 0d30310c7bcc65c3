"""The gRPC service of CosyVoice's own server, on a port of its own.

It runs in the event loop of the HTTP server and shares everything with it; a call is one utterance.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from importlib import import_module
from typing import Any, Final

from cosyvoice_stream.errors import ConfigError, InvalidMessage, PeerGone, VoiceStreamError
from cosyvoice_stream.server.access import KeyRing, bearer_token, key_name
from cosyvoice_stream.server.counted_speech import CountedSpeech
from cosyvoice_stream.server.encoders import wav_header
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.error_map import error_json, error_kind, log_internal
from cosyvoice_stream.server.error_shapes import sentence
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.reference_api import Inference, prepare
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.speech import AudioOut

logger = logging.getLogger(__name__)

PROMPT_RATE_HZ: Final = 16_000
"""Of the bare samples in ``prompt_audio``."""

_STATUS: Final = {
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
"""By HTTP status; everything else is INVALID_ARGUMENT."""
_BYTES_PER_CHAR: Final = 4
_OPTIONS_BYTES: Final = 64 * 1024
_GOODBYE_S: Final = 0.5
_KEEPALIVE_MS: Final = 60_000


class GrpcService:
    """Listens between `start` and `stop`.

    Args:
        services: Of the application.
        port: To listen on, beside the host of the settings; 0 takes a free one.

    Attributes:
        port: The port that it listens on.
    """

    def __init__(self, services: Services, port: int) -> None:
        self.port = port
        self._services = services
        self._keys = KeyRing(services.settings)
        self._server: Any = None
        self._grpc: Any = None

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: gRPC is not installed, or the port cannot be had.
        """
        try:
            self._grpc = await asyncio.to_thread(import_module, "grpc")
            messages = await asyncio.to_thread(
                import_module, "cosyvoice_stream.server.grpc_messages"
            )
        except ImportError:
            raise ConfigError(
                f"{PREFIX}GRPC_PORT is set, and grpc is not installed",
                how_to_fix="pip install 'cosyvoice-stream[grpc]'",
            ) from None
        grpc, settings = self._grpc, self._services.settings
        prompt_bytes = int(settings.max_reference_s * PROMPT_RATE_HZ * 2)
        text_bytes = settings.max_text_chars * _BYTES_PER_CHAR
        server = grpc.aio.server(
            maximum_concurrent_rpcs=settings.max_sessions,
            options=(
                ("grpc.max_receive_message_length", prompt_bytes + text_bytes + _OPTIONS_BYTES),
                # Otherwise a second server would share the port without a word.
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ),
        )
        answer = grpc.unary_stream_rpc_method_handler(
            partial(self._inference, messages.Response),
            request_deserializer=messages.Request.FromString,
            response_serializer=messages.Response.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(messages.SERVICE, {messages.METHOD: answer})
        server.add_generic_rpc_handlers((handler,))
        try:
            self.port = server.add_insecure_port(f"{_host(settings.host)}:{self.port}")
        except RuntimeError:
            raise ConfigError(
                f"port {self.port} on {settings.host} cannot be listened on",
                how_to_fix=f"set {PREFIX}GRPC_PORT to a free one",
            ) from None
        self._server = server
        await server.start()

    async def stop(self) -> None:
        """Cancel what runs and stop listening. Safe to call twice."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(_GOODBYE_S)

    async def _inference(self, response: Any, request: Any, context: Any) -> None:
        try:
            caller = Caller(self._key(context))
            await self._speak(response, _read(request), caller, context)
            return
        except PermissionError as error:
            status, text, retry_ms = "UNAUTHENTICATED", str(error), None
        except VoiceStreamError as error:
            fields = error_json(error)
            self._services.metrics.refused(fields["code"])
            status = _STATUS.get(error_kind(error).http_status, "INVALID_ARGUMENT")
            text, retry_ms = sentence(fields), fields.get("retry_after_ms")
        except Exception as error:
            log_internal(logger, error)
            status, text, retry_ms = "INTERNAL", sentence(error_json(error)), None
        trailing = () if retry_ms is None else (("retry-after-ms", str(retry_ms)),)
        await context.abort(getattr(self._grpc.StatusCode, status), text, trailing)

    def _key(self, context: Any) -> str | None:
        """Check the key of a call; return its name.

        Raises:
            PermissionError: A key is needed and none that fits was sent.
        """
        if not self._keys:
            return None
        sent = dict(context.invocation_metadata() or ())
        key = bearer_token(sent.get("authorization", "")) or sent.get("x-api-key")
        if key is None or not self._keys.open(key):
            raise PermissionError("a key is needed; send the metadata authorization: Bearer KEY")
        return key_name(key)

    async def _speak(self, response: Any, wanted: Inference, caller: Caller, context: Any) -> None:
        services = self._services
        stall_timeout_s = services.settings.stall_timeout_s
        prepared = await prepare(services, wanted, caller.key)
        try:
            async with CountedSpeech(services, prepared.text, prepared.settings, caller) as speech:
                async for event in speech:
                    if isinstance(event, AudioOut) and event.data:
                        try:
                            async with asyncio.timeout(stall_timeout_s):
                                await context.write(response(tts_audio=event.data))
                        except TimeoutError:
                            raise PeerGone("the client does not read") from None
        finally:
            if prepared.temporary is not None:
                services.voices.forget_temporary(prepared.temporary)


def _host(host: str) -> str:
    bare = host.strip("[]")
    return f"[{bare}]" if ":" in bare else bare


def _read(request: Any) -> Inference:
    """Read a request.

    Raises:
        InvalidMessage: None of the four modes is set.
    """
    mode = request.WhichOneof("mode")
    if mode is None:
        raise InvalidMessage(
            "the request holds none of the four modes",
            how_to_fix="set sft_request, zero_shot_request, cross_lingual_request or "
            "instruct_request",
        )
    asked = getattr(request, mode)
    audio = getattr(asked, "prompt_audio", None)
    return Inference(
        text=asked.tts_text,
        speaker=getattr(asked, "spk_id", None),
        clip=None if audio is None else wav_header(PROMPT_RATE_HZ, len(audio)) + audio,
        prompt_text=getattr(asked, "prompt_text", None),
        instruct_text=getattr(asked, "instruct_text", None),
    )
