"""An asyncio client of the native protocol.

    async with connect("http://127.0.0.1:8000") as session:
        utterance = await session.speak("Hello there.", voice="heart")
        async for chunk in utterance:
            play(chunk.samples, chunk.sample_rate)

Utterances of one session are spoken in the order in which they were started; read them in that
order. What is not read waits in a bounded buffer and then in the server, never in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from cosyvoice_stream.errors import EnrolmentRejected, PeerGone, ServerError
from cosyvoice_stream.server.client_utterance import AudioChunk, Utterance
from cosyvoice_stream.server.rest_client import ServerAddress, list_voices
from cosyvoice_stream.server.wire import (
    PROTOCOL,
    AudioHeader,
    ErrorMessage,
    Marks,
    ServerMessage,
    SessionReady,
    SessionUpdated,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    VoiceProgress,
    VoiceReady,
    VoiceRejected,
    parse_server_message,
)
from cosyvoice_stream.types import Flush, Samples

__all__ = ["AudioChunk", "Session", "Utterance", "connect"]

Text: TypeAlias = str | Iterable[str] | AsyncIterator[str | Flush]
OPEN_TIMEOUT_S: Final = 10.0
MAX_DELTA_CHARS: Final = 16_384
RECORDING_CHUNK_BYTES: Final = 32_768
_Reply: TypeAlias = SessionUpdated | VoiceReady | VoiceRejected


class connect:
    """Open a session; use it as an async context manager.

    Args:
        url: Address of the server: ``http://``, ``https://``, ``ws://``, ``wss://`` or
        ``host:port``.
        api_key: Where the server asks for one.
        options: Defaults of every utterance, as in `Session.speak`.

    Raises:
        PeerGone: No server answers there.
        ServerError: The server refuses the session.
    """

    def __init__(self, url: str, *, api_key: str | None = None, **options: Any) -> None:
        self._address = ServerAddress(url, api_key)
        self._options = options
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        self._session = await Session.open(self._address)
        if self._options:
            try:
                await self._session.update(**self._options)
            except BaseException:
                await self._session.close()
                raise
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()


class Session:
    """One connection. Made by `connect`."""

    def __init__(self, socket: ClientConnection, ready: SessionReady, address: ServerAddress):
        self._socket = socket
        self.ready = ready
        """What the server said about itself: engine, voices, limits."""
        self._address = address
        self._ids = itertools.count(1)
        self._live: dict[str, Utterance] = {}
        self._by_number: dict[int, Utterance] = {}
        self._cancelling: dict[str, Utterance] = {}
        self._reply: asyncio.Future[_Reply] | None = None
        self._asking = asyncio.Lock()
        self._senders: set[asyncio.Task[None]] = set()
        self._lost: Exception | None = None
        self.progress: VoiceProgress | None = None
        """The latest report about a recording that is being sent."""
        self._reader = asyncio.create_task(self._read(), name="client: read")

    @classmethod
    async def open(cls, address: ServerAddress) -> Self:
        """Connect and wait until the server has introduced itself."""
        try:
            socket = await open_socket(
                address.stream_url,
                additional_headers=address.headers,
                subprotocols=[PROTOCOL],  # type: ignore[list-item]
                compression=None,
                max_size=None,
                max_queue=8,
                open_timeout=OPEN_TIMEOUT_S,
                ping_interval=None,
            )
        except InvalidStatus as error:
            body = bytes(error.response.body or b"")
            raise address.refusal(error.response.status_code, body) from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise PeerGone(
                f"no server answers at {address.base_url}",
                how_to_fix="start it with `cosyvoice-stream serve`, or check the address",
            ) from error
        try:
            message = parse_server_message(str(await socket.recv()))
        except ConnectionClosed as error:
            raise PeerGone("the server closed the connection at once") from error
        if isinstance(message, ErrorMessage):
            await socket.close()
            raise server_error(message)
        if not isinstance(message, SessionReady):
            await socket.close()
            raise PeerGone(f"{address.base_url} is not a {PROTOCOL} server")
        return cls(socket, message, address)

    async def speak(self, text: Text, *, flush_each: bool = False, **options: Any) -> Utterance:
        """Start an utterance.

        Args:
            text: The text, or its fragments as they come; an async iterator is sent while it runs.
            flush_each: Ask to speak each fragment without waiting for the next.
            options: `voice`, `language`, `speed`, `pitch`, `volume`, `seed`, `strength`, `output`,
                `marks` as in docs/protocol.md; `text` options as ``text_options``.

        Returns:
            An async iterator of `AudioChunk`.

        Raises:
            PeerGone: The connection is lost.
        """
        if "text_options" in options:
            options["text"] = options.pop("text_options")
        utterance = Utterance(self, f"u{next(self._ids)}")
        self._live[utterance.id] = utterance
        try:
            await self.send({"type": "utterance.start", "id": utterance.id, **options})
        except BaseException:
            del self._live[utterance.id]
            raise
        sender = asyncio.create_task(
            self._send_text(utterance, text, flush_each), name="client: send text"
        )
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)
        utterance.sender = sender
        return utterance

    async def _send_text(self, utterance: Utterance, text: Text, flush_each: bool) -> None:
        try:
            async for piece in _fragments(text):
                if utterance.ended:
                    return
                if not isinstance(piece, Flush):
                    for start in range(0, len(piece), MAX_DELTA_CHARS):
                        part = piece[start : start + MAX_DELTA_CHARS]
                        await self.send({"type": "text.delta", "id": utterance.id, "text": part})
                if flush_each or isinstance(piece, Flush):
                    await self.send({"type": "text.flush", "id": utterance.id})
            if not utterance.ended:
                await self.send({"type": "utterance.end", "id": utterance.id})
        except PeerGone:
            return  # the reader tells everybody
        except Exception as error:
            # The caller's own iterator failed: it is the caller who should hear of it.
            utterance.fail(error)
            with suppress(PeerGone):
                await self.send({"type": "utterance.cancel", "id": utterance.id})

    async def update(self, **options: Any) -> SessionUpdated:
        """Change the defaults of utterances that are started afterwards.

        Raises:
            ServerError: An option is refused.
        """
        reply = await self._ask({"type": "session.update", **options})
        assert isinstance(reply, SessionUpdated)
        return reply

    async def clone(
        self,
        recording: Path | str | bytes | tuple[Samples, int],
        *,
        name: str | None = None,
        transcript: str | None = None,
        consent: str | None = None,
        persist: bool = False,
    ) -> VoiceReady:
        """Make a voice from a recording.

        Args:
            recording: A file, the bytes of one, or mono samples with their rate.
            name: What to call the voice.
            transcript: What is said in it.
            consent: The speaker's statement of consent.
            persist: Store the voice on the server; otherwise it lasts as long as the session.

        Returns:
            The answer; ``voice["id"]`` is what `speak` takes.

        Raises:
            EnrolmentRejected: The recording cannot be used; says what to do.
            UnsupportedFormat: It cannot be decoded.
        """
        from cosyvoice_stream.streaming.pcm import to_s16le

        samples, rate = await asyncio.to_thread(_decoded, recording, self.ready)
        begin = {
            "type": "voice.begin",
            "name": name,
            "transcript": transcript,
            "consent": consent,
            "persist": persist,
            "input": {"encoding": "pcm_s16le", "sample_rate": rate},
        }
        data = to_s16le(samples)
        reply = await self._ask(begin, data, {"type": "voice.commit"})
        if isinstance(reply, VoiceRejected):
            raise EnrolmentRejected(
                reply.reason, reply.message, reply.how_to_fix or "", reply.quality
            )
        assert isinstance(reply, VoiceReady)
        return reply

    async def voices(self) -> list[dict[str, Any]]:
        """List the voices of the server, each as VOICE of docs/protocol.md."""
        return await asyncio.to_thread(list_voices, self._address)

    async def close(self) -> None:
        """End the session and, with `PeerGone`, its open utterances. Safe to call twice."""
        for task in (*self._senders, self._reader):
            task.cancel()
        await asyncio.gather(*self._senders, self._reader, return_exceptions=True)
        await self._socket.close()
        self._fail_all(PeerGone("the session is closed"))

    # -- for utterances -------------------------------------------------------------------------

    async def send(self, message: dict[str, Any]) -> None:
        """Send one control message."""
        if self._lost is not None:
            raise self._lost
        try:
            await self._socket.send(json.dumps(message))
        except ConnectionClosed as error:
            raise PeerGone("the server is gone") from error

    async def cancel(self, utterance: Utterance) -> None:
        """Ask the server to stop an utterance; the answer goes to `Utterance.stopped`."""
        self._cancelling[utterance.id] = utterance
        await self.send({"type": "utterance.cancel", "id": utterance.id})

    # -- reading --------------------------------------------------------------------------------

    async def _ask(self, *messages: dict[str, Any] | bytes) -> _Reply:
        """Send messages, audio in between, and wait for the one reply; one question at a time."""
        async with self._asking:
            self._reply = asyncio.get_running_loop().create_future()
            try:
                for message in messages:
                    if isinstance(message, dict):
                        await self.send(message)
                        continue
                    for start in range(0, len(message), RECORDING_CHUNK_BYTES):
                        await self._socket.send(message[start : start + RECORDING_CHUNK_BYTES])
                return await self._reply
            finally:
                self._reply = None

    async def _read(self) -> None:
        error: Exception = PeerGone("the server closed the connection")
        try:
            async for frame in self._socket:
                if isinstance(frame, bytes):
                    header = AudioHeader.unpack(frame)
                    utterance = self._by_number.get(header.number)
                    if utterance is not None:
                        await utterance.put_audio(header, frame[AudioHeader.SIZE :])
                else:
                    message = parse_server_message(frame)
                    if message is not None:
                        self._dispatch(message)
        except ConnectionClosed as closed:
            error = PeerGone(f"the connection was lost ({closed.code if closed.rcvd else 1006})")
        except Exception as broken:
            error = broken
        self._lost = error
        self._fail_all(error)

    def _dispatch(self, message: ServerMessage) -> None:
        if isinstance(message, UtteranceStarted):
            utterance = self._live.get(message.id)
            if utterance is not None:
                utterance.started = message
                self._by_number[message.number] = utterance
        elif isinstance(message, Marks):
            if message.id in self._live:
                self._live[message.id].put_marks(message)
        elif isinstance(message, UtteranceDone):
            utterance = self._live.pop(message.id, None)
            if utterance is not None:
                self._end(utterance)
                utterance.finish(message)
        elif isinstance(message, UtteranceCancelled):
            name = message.id or ""
            utterance = self._live.pop(name, None) or self._cancelling.get(name)
            self._cancelling.pop(name, None)
            if utterance is not None:
                self._end(utterance)
                utterance.stop(message)
        elif isinstance(message, VoiceProgress):
            self.progress = message
        elif isinstance(message, ErrorMessage):
            self._dispatch_error(message)
        elif isinstance(message, _Reply) and self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    def _dispatch_error(self, message: ErrorMessage) -> None:
        error = server_error(message)
        name = message.id or ""
        utterance = self._live.pop(name, None) or self._cancelling.get(name)
        self._cancelling.pop(name, None)
        if utterance is not None:
            self._end(utterance)
            utterance.fail(error)
        elif message.id is None and self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    def _end(self, utterance: Utterance) -> None:
        if utterance.started is not None:
            self._by_number.pop(utterance.started.number, None)

    def _fail_all(self, error: Exception) -> None:
        for utterance in (*self._live.values(), *self._cancelling.values()):
            utterance.fail(error)
        self._live.clear()
        self._cancelling.clear()
        self._by_number.clear()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


async def _fragments(text: Text) -> AsyncIterator[str | Flush]:
    if isinstance(text, str):
        yield text
    elif isinstance(text, AsyncIterator):
        async for piece in text:
            yield piece
    else:
        for piece in text:
            yield piece


def _decoded(
    recording: Path | str | bytes | tuple[Samples, int], ready: SessionReady
) -> tuple[Samples, int]:
    """Mono samples and their rate, at most 48 kHz."""
    if isinstance(recording, tuple):
        return recording
    from cosyvoice_stream.decode import decode_audio

    source = recording if isinstance(recording, bytes) else Path(recording)
    decoded = decode_audio(source, max_seconds=ready.limits.max_recording_s)
    return decoded.samples, decoded.sample_rate


def server_error(message: ErrorMessage) -> ServerError:
    """The exception for an error of the server."""
    retry = None if message.retry_after_ms is None else message.retry_after_ms / 1000
    return ServerError(
        message.code, message.message, how_to_fix=message.how_to_fix, retry_after_s=retry
    )
