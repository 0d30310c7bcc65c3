"""One utterance as its listener sees it: audio in a bounded buffer, marks, how it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.server.plain_audio import UNPACK
from cosyvoice_stream.server.wire import (
    AudioHeader,
    Marks,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    UtteranceWarning,
    VisemeTime,
    WordTime,
)
from cosyvoice_stream.types import Samples

if TYPE_CHECKING:
    from cosyvoice_stream.server.client import Session

MAX_BUFFERED_BYTES: Final = 1 << 20
"""The socket is not read while so much audio of an utterance waits: 20 s of 24 kHz PCM."""
WAV_HEADER_BYTES: Final = 44


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of an utterance."""

    data: bytes
    """As the server sent it."""
    encoding: str
    sample_rate: int
    """In hertz."""
    first_sample: int
    """Position of the chunk in the utterance."""
    last: bool
    words: tuple[WordTime, ...] = ()
    """Words that were announced before this chunk."""
    visemes: tuple[VisemeTime, ...] = ()

    @property
    def start_ms(self) -> float:
        """Position of the chunk in the utterance."""
        return 1000 * self.first_sample / self.sample_rate

    @property
    def samples(self) -> Samples:
        """Mono float32, shape (N,).

        Raises:
            UnsupportedFormat: Compressed audio; decode `data` with a library.
        """
        if self.encoding not in UNPACK:
            raise UnsupportedFormat(
                f"{self.encoding} chunks hold no plain samples",
                how_to_fix="ask for pcm_s16le, or decode the joined data",
            )
        header = self.encoding == "wav" and self.first_sample == 0
        return UNPACK[self.encoding](self.data[WAV_HEADER_BYTES if header else 0 :])


class Utterance:
    """An async iterator of `AudioChunk`. Made by `Session.speak`; one reader at a time.

    Attributes:
        id: Its name in the protocol.
        started: Format, voice and seed, once the server speaks.
        warnings: What the server had to say about the text so far.
        done: The server's figures, once the utterance is complete.
        stopped: What was heard, once it has been cancelled.
    """

    def __init__(self, session: Session, utterance_id: str) -> None:
        self._session = session
        self.id = utterance_id
        self.started: UtteranceStarted | None = None
        self.warnings: list[UtteranceWarning] = []
        self.done: UtteranceDone | None = None
        self.stopped: UtteranceCancelled | None = None
        self.sender: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._chunks: deque[AudioChunk] = deque()
        self._buffered = 0
        self._discard = False
        self._words: list[WordTime] = []
        self._visemes: list[VisemeTime] = []
        self._changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether the server has said its last word about it."""
        return bool(self.done or self.stopped or self._error)

    @property
    def is_full(self) -> bool:
        """Whether more audio has to wait until some has been read."""
        return self._buffered > MAX_BUFFERED_BYTES and not self._ignores_audio

    @property
    def _ignores_audio(self) -> bool:
        return self._discard or self.ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AudioChunk:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.ended or self._discard:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk.data)
        self._session.wake_reader()
        return chunk

    async def read(self) -> Samples:
        """Wait for the whole utterance: mono float32, shape (N,)."""
        pieces = [chunk.samples async for chunk in self]
        return np.concatenate([*pieces, np.zeros(0, np.float32)])

    async def cancel(self) -> UtteranceCancelled:
        """Stop it; no chunk comes out afterwards.

        Returns:
            How much was sent and heard, and the text that was spoken.

        Raises:
            PeerGone: The connection is lost.
            ServerError: The server has forgotten the utterance.
        """
        self._drop()
        if self.sender is not None:
            self.sender.cancel()
        if self.stopped is None and self._error is None:
            await self._session.cancel(self)
        if self.stopped is None:
            assert self._error is not None
            raise self._error
        return self.stopped

    async def played(self, played_ms: float) -> None:
        """Tell the server how much the listener has heard."""
        await self._session.send({"type": "playback", "id": self.id, "played_ms": played_ms})

    # -- for the session ------------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until a cancel has been answered."""
        while self.stopped is None and self._error is None:
            self._changed.clear()
            await self._changed.wait()

    def put_audio(self, header: AudioHeader, data: bytes) -> None:
        """Append a frame."""
        if self._ignores_audio or self.started is None:
            return
        chunk = AudioChunk(
            data,
            self.started.encoding,
            self.started.sample_rate,
            header.sample,
            header.last,
            tuple(self._words),
            tuple(self._visemes),
        )
        self._words.clear()
        self._visemes.clear()
        self._chunks.append(chunk)
        self._buffered += len(data)
        self._changed.set()

    def put_note(self, note: Marks | UtteranceWarning) -> None:
        """Keep marks for the chunk that follows, and warnings."""
        if isinstance(note, UtteranceWarning):
            self.warnings.append(note)
            return
        self._words += note.words
        self._visemes += note.visemes

    def finish(self, message: UtteranceDone) -> None:
        """The server is done."""
        self.done = message
        self._changed.set()

    def stop(self, message: UtteranceCancelled) -> None:
        """The server has cancelled it."""
        self.stopped = message
        self._drop()

    def fail(self, error: Exception) -> None:
        """It ended with an error; audio that has arrived can still be read."""
        # A cancel of something complete can fail: the server may have forgotten it, or be gone.
        if self._error is None and self.stopped is None and (self.done is None or self._discard):
            self._error = error
        self._session.wake_reader()
        self._changed.set()

    def _drop(self) -> None:
        """Nothing more is to be heard."""
        self._discard = True
        self._chunks.clear()
        self._buffered = 0
        self._session.wake_reader()
        self._changed.set()
