"""OpenAI's Realtime WebSocket as a way to speak.

There is no language model and no speech recognition: the text of the newest message, or of
``response.input``, is spoken as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from cosyvoice_stream.errors import InvalidMessage, InvalidState, PeerGone, VoiceStreamError
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.error_map import (
    SessionIdle,
    SessionTooLong,
    error_json,
    error_kind,
    http_status,
    log_internal,
)
from cosyvoice_stream.server.error_shapes import WrongField, openai_error
from cosyvoice_stream.server.json_body import check_chars, parse_body
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.realtime_events import (
    ClientEvent,
    ItemAsk,
    ItemCreate,
    ItemTruncate,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
    SpeechChanges,
    SpeechConfig,
)
from cosyvoice_stream.server.realtime_items import Conversation, new_id
from cosyvoice_stream.server.realtime_response import Response, Wish
from cosyvoice_stream.server.services import Services, services_of
from cosyvoice_stream.server.transport import Transport
from cosyvoice_stream.server.websocket import WebSocketTransport, deny

logger = logging.getLogger(__name__)

_BETA: Final = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "conversation.item.added": "conversation.item.created",
    "conversation.item.done": None,
}
"""Names of events in the beta of the API; None had no counterpart."""
_GOING_AWAY: Final = 1001
_NORMAL: Final = 1000
_SESSION_S: Final = 3600
"""What clients are told when a session has no limit of its own."""


class Refused(InvalidState):
    """An event that does not fit what is going on, with the code that clients of the API know."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def openai_realtime_routes() -> list[WebSocketRoute]:
    """Return the route of this module."""
    return [WebSocketRoute("/v1/realtime", openai_realtime)]


async def openai_realtime(websocket: WebSocket) -> None:
    """Serve one connection."""
    services = services_of(websocket)
    offered = websocket.scope.get("subprotocols") or []
    key = caller_key(websocket.scope)
    try:
        services.readiness.require()
        services.sessions.check_room(key)
    except VoiceStreamError as error:
        await deny(websocket, error)
        return
    beta = "realtime=v1" in websocket.headers.get("openai-beta", "")
    session = RealtimeSession(
        services,
        WebSocketTransport(websocket),
        model=websocket.query_params.get("model") or services.engine.info.name,
        beta=beta or "openai-beta.realtime-v1" in offered,
        key=key,
    )
    await websocket.accept("realtime" if "realtime" in offered else None)
    with services.sessions.counting(session, key):
        await session.run()


class RealtimeSession:
    """One connection: at most one response at a time, which is an utterance like any other.

    Args:
        services: Of the application.
        transport: The peer.
        model: What the client calls the engine.
        beta: The client speaks the API as it was before its general release.
        key: `key_name` of the key that it came with.
    """

    def __init__(
        self, services: Services, transport: Transport, *, model: str, beta: bool, key: str | None
    ) -> None:
        self._services = services
        self._transport = transport
        self._model = model
        self._beta = beta
        self._caller = Caller(key)
        self._session_id = new_id("sess")
        self._conversation_id = new_id("conv")
        self._config = SpeechConfig()
        self._items = Conversation()
        self._sending = asyncio.Lock()
        self._response: Response | None = None
        self._task: asyncio.Task[None] | None = None
        self._told_of_audio = False
        self._handlers: dict[str, Callable[[str], Awaitable[None]]] = {
            "session.update": self._on_session_update,
            "conversation.item.create": self._on_item_create,
            "conversation.item.retrieve": self._on_item_retrieve,
            "conversation.item.delete": self._on_item_delete,
            "conversation.item.truncate": self._on_item_truncate,
            "response.create": self._on_response_create,
            "response.cancel": self._on_response_cancel,
            "input_audio_buffer.append": self._on_audio,
            "input_audio_buffer.clear": self._on_audio_clear,
        }

    async def run(self) -> None:
        """Serve until either side leaves."""
        self._services.metrics.session_opened()
        try:
            await self._send("session.created", session=self._session_json())
            conversation = {"id": self._conversation_id, "object": "realtime.conversation"}
            await self._send("conversation.created", conversation=conversation)
            await self._serve()
        except PeerGone:
            pass
        finally:
            self._services.metrics.session_closed()
            await self._stop()

    async def drain(self, timeout_s: float) -> None:
        """Finish the response, then say good-bye; see `Drainable`."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
        with contextlib.suppress(PeerGone):
            await self._transport.close(_GOING_AWAY, "the server is about to stop")

    async def _serve(self) -> None:
        settings = self._services.settings
        end_at = _later(settings.max_session_s)
        while True:
            idle_at = _later(settings.idle_timeout_s)
            try:
                async with asyncio.timeout_at(min(idle_at, end_at)):
                    frame = await self._transport.receive()
            except TimeoutError:
                if self._speaking:
                    await asyncio.wait([self._active])
                    continue
                idle = idle_at < end_at
                limit_s = (settings.idle_timeout_s if idle else settings.max_session_s) or 0.0
                await self._send_error(SessionIdle(limit_s) if idle else SessionTooLong(limit_s))
                await self._transport.close(_NORMAL, "idle" if idle else "too long")
                return
            await self._handle(frame)

    async def _handle(self, frame: str | bytes) -> None:
        event_id = None
        try:
            if isinstance(frame, bytes):
                raise InvalidMessage("events are text frames")
            event = parse_body(ClientEvent, frame)
            event_id = event.event_id
            handler = self._handlers.get(event.type)
            if handler is None:
                raise WrongField("type", "this type of event is not served here")
            await handler(frame)
        except PeerGone:
            raise
        except VoiceStreamError as error:
            await self._send_error(error, event_id)
        except Exception as error:
            log_internal(logger, error)
            await self._send_error(error, event_id)

    async def _on_session_update(self, frame: str) -> None:
        asked = parse_body(SessionUpdate, frame).session
        self._config = self._config.model_copy(update=_checked(asked))
        await self._send("session.updated", session=self._session_json())

    async def _on_item_create(self, frame: str) -> None:
        event = parse_body(ItemCreate, frame)
        before, item = self._items.create(event.item, event.previous_item_id)
        check_chars(item.text, self._services.settings.max_text_chars)
        for kind in ("conversation.item.added", "conversation.item.done"):
            await self._send(kind, previous_item_id=before, item=item.to_json())

    async def _on_item_retrieve(self, frame: str) -> None:
        item = self._items.get(parse_body(ItemAsk, frame).item_id)
        await self._send("conversation.item.retrieved", item=item.to_json())

    async def _on_item_delete(self, frame: str) -> None:
        item_id = parse_body(ItemAsk, frame).item_id
        self._items.delete(item_id)
        await self._send("conversation.item.deleted", item_id=item_id)

    async def _on_item_truncate(self, frame: str) -> None:
        event = parse_body(ItemTruncate, frame)
        self._items.get(event.item_id).truncate(event.audio_end_ms)
        await self._send(
            "conversation.item.truncated",
            item_id=event.item_id,
            content_index=event.content_index,
            audio_end_ms=event.audio_end_ms,
        )

    async def _on_response_create(self, frame: str) -> None:
        asked = parse_body(ResponseCreate, frame).response
        if self._speaking:
            raise Refused(
                "conversation_already_has_active_response",
                "a response is being spoken; wait for its response.done, or cancel it",
            )
        self._services.readiness.require()
        config = self._config.model_copy(update=_checked(asked))
        text = self._items.take_text(asked.input)
        check_chars(text, self._services.settings.max_text_chars)
        kept = None if asked.conversation == "none" else self._conversation_id
        wish = Wish(text, config, asked.metadata, kept)
        response = Response(self._services, self._caller, wish, self._items.add, self._send)
        self._response = response
        self._task = asyncio.create_task(response.run(), name="realtime response")
        await asyncio.sleep(0)  # a task that is cancelled before its first step says nothing

    async def _on_response_cancel(self, frame: str) -> None:
        asked = parse_body(ResponseCancel, frame).response_id
        known = self._response is not None and asked in (None, self._response.response_id)
        if not (self._speaking and known):
            raise Refused("response_cancel_not_active", "no such response is being spoken")
        self._active.cancel()

    async def _on_audio(self, frame: str) -> None:
        if not self._told_of_audio:
            self._told_of_audio = True
            raise WrongField("type", "audio is not listened to here, and is ignored from here on")

    async def _on_audio_clear(self, frame: str) -> None:
        await self._send("input_audio_buffer.cleared")

    @property
    def _speaking(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def _active(self) -> asyncio.Task[None]:
        assert self._task is not None
        return self._task

    async def _stop(self) -> None:
        """Stop speaking to a peer that has left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self, kind: str, **fields: Any) -> None:
        named = _BETA.get(kind, kind) if self._beta else kind
        if named is None:
            return
        text = json.dumps({"type": named, "event_id": new_id("event"), **fields})
        stall_timeout_s = self._services.settings.stall_timeout_s
        async with self._sending:
            try:
                async with asyncio.timeout(stall_timeout_s):
                    await self._transport.send(text)
            except TimeoutError:
                self._transport.abort()
                raise PeerGone(f"the peer took nothing for {stall_timeout_s:g} s") from None

    async def _send_error(self, error: BaseException, event_id: str | None = None) -> None:
        fields = error_json(error)
        self._services.metrics.refused(error_kind(error).code)
        said = openai_error(http_status(error), fields, error)["error"]
        if isinstance(error, Refused):
            said["code"] = error.code
        await self._send("error", error={**said, "event_id": event_id})

    def _session_json(self) -> dict[str, Any]:
        lasts_s = self._services.settings.max_session_s or _SESSION_S
        session: dict[str, Any] = {
            "type": "realtime",
            "object": "realtime.session",
            "id": self._session_id,
            "model": self._model,
            "output_modalities": ["audio"],
            "instructions": self._config.instructions,
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            "audio": self._config.to_json(),
            "expires_at": int(time.time() + lasts_s),
        }
        return session


def _checked(asked: SpeechChanges) -> dict[str, Any]:
    """Return the changes.

    Raises:
        WrongField: They ask for text without audio.
    """
    if asked.text_only:
        raise WrongField("output_modalities", "there is no answer without audio here")
    return asked.changes()


def _later(seconds: float | None) -> float:
    """Time of the loop after so many seconds; never for None."""
    return asyncio.get_running_loop().time() + (float("inf") if seconds is None else seconds)
