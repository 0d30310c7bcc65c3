"""Speech as the answer to a request: headers with the first audio, then audio while it is made.

What the answer looks like is a `SpeechForm`: the native one here, those of other APIs beside their
routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cosyvoice_stream.errors import PeerGone, VoiceStreamError
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.counted_speech import CountedSpeech
from cosyvoice_stream.server.error_map import log_internal
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.speech import AudioOut, Done, MarksOut, Started
from cosyvoice_stream.server.websocket import ABORT
from cosyvoice_stream.server.wire import UtteranceSettings

logger = logging.getLogger(__name__)


class SpeechForm:
    """How an utterance becomes a response; as it stands, the form of ``POST /v1/speak``."""

    def headers(self, started: Started) -> dict[str, str]:
        """Return the headers that describe the audio."""
        fields = {
            "Content-Type": started.mime,
            "X-Encoding": started.encoding,
            "X-Sample-Rate": str(started.sample_rate),
            "X-Channels": str(started.channels),
            "X-Seed": str(started.seed),
            "X-Voice": started.voice,
        }
        if started.bytes_per_sample is not None:
            fields["X-Bytes-Per-Sample"] = str(started.bytes_per_sample)
        if started.byte_order is not None:
            fields["X-Byte-Order"] = started.byte_order
        return fields

    def audio(self, data: bytes) -> bytes:
        """Return what is sent for a piece of encoded audio."""
        return data

    def marks(self, marks: MarksOut) -> None:
        """Note the times of words whose audio follows."""

    def done(self, done: Done) -> bytes:
        """Return what follows the audio."""
        return b""

    def failed(self, error: BaseException) -> bytes | None:
        """Return what follows the audio of an utterance that failed; None cuts the body short."""
        return None


NATIVE: Final = SpeechForm()


class SpeakResponse(Response):
    """Streams one utterance.

    What goes wrong before the first audio is raised, and becomes an error in the shape of the path.
    What goes wrong later cuts the chunked body short, so that the client can tell, unless the form
    has a way to say it. A client that goes away, or stops reading for too long, cancels the work.

    Args:
        services: Of the application.
        text: What is spoken.
        settings: How it is spoken and encoded.
        form: How it is put into the response.
        ended: Called when nothing more is spoken, however that came about.
    """

    def __init__(
        self,
        services: Services,
        text: str,
        settings: UtteranceSettings,
        form: SpeechForm = NATIVE,
        *,
        ended: Callable[[], None] | None = None,
    ) -> None:
        # Not `super().__init__()`: status and headers are known with the first audio only.
        self.background = None
        self._services = services
        self._text = text
        self._settings = settings
        self._form = form
        self._ended = ended
        self._head_sent = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose body has been read."""
        caller = Caller(caller_key(scope))
        work = asyncio.create_task(self._speak(send, caller), name="speak")
        gone = asyncio.create_task(_client_gone(receive), name="speak: watch the client")
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            work.cancel()
            # Waits until the engine has let go, so that the slot is free when this returns.
            await asyncio.wait((work, gone))
            if self._ended is not None:
                self._ended()
        error = None if work.cancelled() else work.exception()
        if error is None:
            return
        if not self._head_sent:
            raise error
        if not isinstance(error, VoiceStreamError):
            log_internal(logger, error)
        rest = None if isinstance(error, PeerGone) else self._form.failed(error)
        if rest is None:
            await _cut_short(scope, receive)
        else:
            await self._pass_on(send, _body(rest, more=False))

    async def _speak(self, send: Send, caller: Caller) -> None:
        form = self._form
        async with CountedSpeech(self._services, self._text, self._settings, caller) as speech:
            async for event in speech:
                if isinstance(event, MarksOut):
                    form.marks(event)
                elif isinstance(event, AudioOut) and event.data:
                    await self._send_head(send, speech.started)
                    await self._pass_on(send, _body(form.audio(event.data), more=True))
                elif isinstance(event, Done):
                    await self._send_head(send, speech.started)
                    await self._pass_on(send, _body(form.done(event), more=False))

    async def _send_head(self, send: Send, started: Started | None) -> None:
        assert started is not None
        if not self._head_sent:
            self._head_sent = True
            await self._pass_on(send, _head(self._form.headers(started)))

    async def _pass_on(self, send: Send, message: dict[str, Any]) -> None:
        stall_timeout_s = self._services.settings.stall_timeout_s
        try:
            async with asyncio.timeout(stall_timeout_s):
                await send(message)
        except TimeoutError:
            raise PeerGone(f"the client did not read for {stall_timeout_s:g} s") from None


async def _client_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _head(fields: dict[str, str]) -> dict[str, Any]:
    # Proxies that gather a response before passing it on would undo the streaming.
    fields = {**fields, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _body(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _cut_short(scope: Scope, receive: Receive) -> None:
    """Drop the connection in the middle of the body: chunked encoding has no other way to fail."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is None:
        raise ConnectionAbortedError("the utterance failed after its first audio")
    abort()
    await _client_gone(receive)
