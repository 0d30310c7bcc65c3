"""An asyncio client of the native protocol.

    async with connect("http://127.0.0.1:8000") as session:
        utterance = await session.speak("Hello there.", voice="heart")
        async for chunk in utterance:
            play(chunk.samples, chunk.sample_rate)

Utterances of one session are spoken in the order in which they were started; read them in that
order, and cancel what you do not want to hear. What is not read waits in a bounded buffer and then
in the server, never in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, cast

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from cosyvoice_stream.errors import EnrolmentRejected, PeerGone
from cosyvoice_stream.server.client_connect import open_connection, server_error
from cosyvoice_stream.server.client_messages import Text, control_message, fragments
from cosyvoice_stream.server.client_questions import Questions, Reply
from cosyvoice_stream.server.client_recording import read_recording
from cosyvoice_stream.server.client_utterance import AudioChunk, Utterance
from cosyvoice_stream.server.rest_client import ServerAddress, list_voices
from cosyvoice_stream.server.wire import (
    AudioHeader,
    ErrorMessage,
    Marks,
    ServerMessage,
    SessionReady,
    SessionUpdated,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    UtteranceWarning,
    VoiceProgress,
    VoiceReady,
    VoiceRejected,
    parse_server_message,
)
from cosyvoice_stream.types import Flush, Samples

__all__ = ["AudioChunk", "Session", "Utterance", "connect"]

MAX_DELTA_CHARS: Final = 16_384
RECORDING_CHUNK_BYTES: Final = 32_768
AGAIN: Final = "connect again"
logger = logging.getLogger(__name__)


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
        try:
            if self._options:
                await self._session.update(**self._options)
        except BaseException:
            await self._session.close()
            raise
        return self._session

    async def __aexit__(self, *_: object) -> None:
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
        self._questions = Questions()
        self._asking = asyncio.Lock()
        self._room = asyncio.Event()
        self._urgent = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._lost: Exception | None = None
        self.progress: VoiceProgress | None = None
        """The latest report about a recording that is being sent."""
        self._reader = asyncio.create_task(self._read(), name="client: read")

    @classmethod
    async def open(cls, address: ServerAddress) -> Self:
        """Connect and wait until the server has introduced itself; see `open_connection`."""
        return cls(*await open_connection(address), address)

    async def speak(self, text: Text, *, flush_each: bool = False, **options: Any) -> Utterance:
        """Start an utterance.

        Args:
            text: The text, or its fragments as they come. An async iterable is sent while it runs
                and closed when the utterance ends; another iterable must not block.
            flush_each: Ask to speak each fragment without waiting for the next.
            options: `voice`, `language`, `speed`, `pitch`, `volume`, `seed`, `strength`, `output`,
                `marks` as in docs/protocol.md; `text` options as ``text_options``.

        Returns:
            An async iterator of `AudioChunk`.

        Raises:
            PeerGone: The connection is lost.
            InvalidOption: A number is not finite. What else is wrong the server says, to whoever
                reads the utterance.
        """
        utterance = Utterance(self, f"u{next(self._ids)}")
        self._live[utterance.id] = utterance
        try:
            await self.send(control_message("utterance.start", options, id=utterance.id))
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
            async with aclosing(fragments(text)) as pieces:
                async for piece in pieces:
                    await self._send_piece(utterance.id, piece, flush_each)
            await self.send({"type": "utterance.end", "id": utterance.id})
        except PeerGone:
            return  # the reader tells everybody
        except Exception as error:
            # The caller's own iterator failed: it is the caller who should hear of it.
            utterance.fail(error)
            with suppress(PeerGone):
                await self.send({"type": "utterance.cancel", "id": utterance.id})

    async def _send_piece(self, utterance_id: str, piece: str | Flush, flush: bool) -> None:
        if not isinstance(piece, Flush):
            for start in range(0, len(piece), MAX_DELTA_CHARS):
                part = piece[start : start + MAX_DELTA_CHARS]
                await self.send({"type": "text.delta", "id": utterance_id, "text": part})
        if flush or isinstance(piece, Flush):
            await self.send({"type": "text.flush", "id": utterance_id})

    async def update(self, **options: Any) -> SessionUpdated:
        """Change the defaults of utterances that are started afterwards; options as in `speak`.

        Raises:
            ServerError: An option is refused.
        """
        async with self._asking:
            await self._questions.settled()
            request_id, answer = self._questions.expect()
            try:
                await self.send(control_message("session.update", options, request_id=request_id))
            except BaseException:
                self._questions.forget(request_id)
                raise
            return cast(SessionUpdated, await self._answered(answer))

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
            LimitExceeded: It is too long.
        """
        data, rate = await asyncio.to_thread(
            read_recording, recording, self.ready.limits.max_recording_s
        )
        options = {"name": name, "transcript": transcript, "consent": consent, "persist": persist}
        sound = {"encoding": "pcm_s16le", "sample_rate": rate}
        async with self._asking:
            await self._questions.settled()
            request_id, answer = self._questions.expect()
            name_it = {"request_id": request_id}
            try:
                await self.send({"type": "voice.begin", "input": sound, **name_it, **options})
                for start in range(0, len(data), RECORDING_CHUNK_BYTES):
                    if answer.done():
                        break  # it has been refused
                    await self._send_frame(data[start : start + RECORDING_CHUNK_BYTES])
                if not answer.done():
                    await self.send({"type": "voice.commit", **name_it})
            except BaseException:
                self._questions.forget(request_id)
                with suppress(PeerGone):
                    await self.send({"type": "voice.cancel"})
                raise
            reply = await self._answered(answer)
        if isinstance(reply, VoiceRejected):
            cure = reply.how_to_fix or ""
            raise EnrolmentRejected(reply.reason, reply.message, cure, reply.quality)
        return cast(VoiceReady, reply)

    async def voices(self) -> list[dict[str, Any]]:
        """List the voices of the server, each as VOICE of docs/protocol.md."""
        return await asyncio.to_thread(list_voices, self._address)

    async def close(self) -> None:
        """End the session and, with `PeerGone`, its open utterances. Safe to call twice."""
        for task in (*self._senders, self._reader):
            task.cancel()
        await asyncio.gather(*self._senders, self._reader, return_exceptions=True)
        # The server's farewell comes behind audio that nobody has read.
        rest = asyncio.create_task(self._discard(), name="client: discard")
        try:
            await self._socket.close()
        finally:
            self._socket.transport.abort()
            await asyncio.gather(rest, return_exceptions=True)
            self._lose(PeerGone("the session is closed", how_to_fix=AGAIN))

    async def _discard(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._socket.recv()

    # -- for utterances -------------------------------------------------------------------------

    async def send(self, message: dict[str, Any]) -> None:
        """Send one control message.

        Raises:
            PeerGone: The connection is lost.
        """
        await self._send_frame(json.dumps(message))

    async def cancel(self, utterance: Utterance) -> None:
        """Ask the server to stop an utterance, and wait until it has ended with `stopped` or not.

        Raises:
            PeerGone: The connection is lost.
        """
        self._cancelling[utterance.id] = utterance
        with self._urgently():
            await self.send({"type": "utterance.cancel", "id": utterance.id})
            await utterance.settled()

    def wake_reader(self) -> None:
        """There is room in a buffer again."""
        self._room.set()

    # -- asking ---------------------------------------------------------------------------------

    async def _send_frame(self, frame: str | bytes) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            await self._socket.send(frame)
        except ConnectionClosed as error:
            raise PeerGone("the connection was lost", how_to_fix=AGAIN) from error

    @contextmanager
    def _urgently(self) -> Iterator[None]:
        """Read on past audio that nobody takes, because an answer comes behind it.

        What arrives meanwhile is bounded by what was on its way: the server answers at once.
        """
        self._urgent += 1
        self._room.set()
        try:
            yield
        finally:
            self._urgent -= 1

    async def _answered(self, answer: asyncio.Future[Reply]) -> Reply:
        with self._urgently():
            return await asyncio.shield(answer)

    # -- reading --------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._socket.recv()
                if isinstance(frame, bytes):
                    header = AudioHeader.unpack(frame)
                    utterance = self._by_number.get(header.number)
                    if utterance is not None:
                        while utterance.is_full and not self._urgent:
                            self._room.clear()
                            await self._room.wait()
                        utterance.put_audio(header, frame[AudioHeader.SIZE :])
                else:
                    message = parse_server_message(frame)
                    if message is not None:
                        self._dispatch(message)
        except ConnectionClosed as closed:
            code = int(closed.rcvd.code) if closed.rcvd else 1006
            end = "the server has stopped" if code == 1001 else "the connection was lost"
            self._lose(PeerGone(f"{end} ({code})", how_to_fix=AGAIN))
        except Exception as broken:
            self._lose(broken)

    def _dispatch(self, message: ServerMessage) -> None:
        if isinstance(message, UtteranceStarted):
            utterance = self._live.get(message.id)
            if utterance is not None:
                utterance.started = message
                self._by_number[message.number] = utterance
        elif isinstance(message, Marks | UtteranceWarning):
            if message.id in self._live:
                self._live[message.id].put_note(message)
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
        elif isinstance(message, Reply):
            self._questions.answer(message)

    def _dispatch_error(self, message: ErrorMessage) -> None:
        error = server_error(message)
        name = message.id or ""
        utterance = self._live.pop(name, None) or self._cancelling.get(name)
        self._cancelling.pop(name, None)
        if utterance is not None:
            self._end(utterance)
            utterance.fail(error)
        elif message.id is None and not self._questions.refuse(error, message.request_id):
            logger.warning("the server says %s: %s", error.code, error)

    def _end(self, utterance: Utterance) -> None:
        if utterance.started is not None:
            self._by_number.pop(utterance.started.number, None)
        if utterance.sender is not None:
            utterance.sender.cancel()  # it may be waiting for text that nobody needs any more

    def _lose(self, error: Exception) -> None:
        """The connection is gone, and everything that it carried."""
        if self._lost is None:
            self._lost = error
        for utterance in (*self._live.values(), *self._cancelling.values()):
            self._end(utterance)
            utterance.fail(error)
        self._live.clear()
        self._cancelling.clear()
        self._questions.fail(error)
