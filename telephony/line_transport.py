"""A session's transport inside a call: messages from whoever leads it, audio to the line."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.transport import TrackAudio
from cosyvoice_stream.telephony.line_audio import LineAudio

MAX_MIC_PIECES: Final = 100
"""Pieces of the caller's audio that wait for the session; older ones are dropped."""
MAX_WAITING_BYTES: Final = 1 << 20
"""Messages that wait for the session."""

OnMessage = Callable[[str], Awaitable[None]]
"""Takes a message of the session; it sends no more until that returns."""


class LineTransport:
    """`Transport` of the session of a call.

    Args:
        audio: Takes the frames of the session.
        on_message: Takes its messages.
    """

    def __init__(self, audio: LineAudio, on_message: OnMessage) -> None:
        self._audio = audio
        self._on_message = on_message
        self._incoming: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._mic_pieces = 0
        self._came = asyncio.Event()
        self._gone = False

    async def receive(self) -> str | bytes:
        """Wait for a message, or a piece of the caller's audio."""
        while not self._incoming:
            if self._gone:
                raise PeerGone("the call is over")
            self._came.clear()
            await self._came.wait()
        frame = self._incoming.popleft()
        if isinstance(frame, TrackAudio):
            self._mic_pieces -= 1
        else:
            self._waiting_bytes -= len(frame)
        return frame

    async def send(self, frame: str | bytes) -> None:
        """Let the line take a frame of audio, or hand a message on."""
        if isinstance(frame, bytes):
            await self._audio.put(frame)
        else:
            await self._on_message(frame)

    async def close(self, code: int, reason: str) -> None:
        """The session has ended."""
        self.lose()

    def abort(self) -> None:
        """The session gives the call up."""
        self.lose()

    def unsent_bytes(self) -> int:
        """What the line has not taken."""
        return self._audio.waiting_bytes

    # The side of the call.

    def say(self, message: str) -> None:
        """Send the session a message.

        Raises:
            PeerGone: It has ended, or does not read.
        """
        if self._gone or self._waiting_bytes + len(message) > MAX_WAITING_BYTES:
            raise PeerGone("the session takes no messages")
        self._waiting_bytes += len(message)
        self._incoming.append(message)
        self._came.set()

    def hear(self, data: bytes) -> None:
        """Send it a piece of the caller's audio: 16-bit mono at 16 kHz."""
        if self._gone:
            return
        if self._mic_pieces >= MAX_MIC_PIECES:
            self._incoming.remove(next(f for f in self._incoming if isinstance(f, TrackAudio)))
            self._mic_pieces -= 1
        self._incoming.append(TrackAudio(data))
        self._mic_pieces += 1
        self._came.set()

    def lose(self) -> None:
        """The call is over; the session hears it when it has read what came before."""
        self._gone = True
        self._audio.close()
        self._came.set()
