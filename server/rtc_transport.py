"""A session's transport over a call: messages on the data channel, audio on the tracks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from aiortc import RTCDataChannel

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.rtc_track import FRAME_SAMPLES, CallAudio
from cosyvoice_stream.server.transport import PeerLost, TrackAudio
from cosyvoice_stream.server.wire import AudioHeader, TrackPosition, UtteranceStarted
from cosyvoice_stream.server.wire_replies import parse_server_message

MAX_WAITING_BYTES: Final = 512 * 1024
"""Messages of a peer that the session has not read. SCTP acknowledges what arrives whether or not
anybody reads it, so a peer that floods is dropped."""
_HIGH_WATER_BYTES: Final = 64 * 1024
_LOW_WATER_BYTES: Final = 16 * 1024
"""Of messages that the data channel has not sent."""
_MIC_FRAMES: Final = 50
"""One second of microphone that waits; older audio is dropped."""
_LAST_WORDS_S: Final = 2.0
"""For what is still to be sent when a session closes."""


class CallTransport:
    """`Transport` over a data channel that is open, and the outgoing track of its call.

    Args:
        channel: The data channel.
        audio: Feeds the track.
        rtp_origin: RTP time stamp of the first packet of the track; None until that has left.
    """

    def __init__(
        self, channel: RTCDataChannel, audio: CallAudio, rtp_origin: Callable[[], int | None]
    ) -> None:
        self._channel = channel
        self._audio = audio
        self._incoming: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._mic: deque[TrackAudio] = deque(maxlen=_MIC_FRAMES)
        self._came = asyncio.Event()
        self._drained = asyncio.Event()
        self._gone: PeerGone | None = None
        self._names: dict[int, str] = {}
        self._next: tuple[int, int, int] | None = None
        """Number of the utterance, sample and time stamp of what would follow without a gap."""
        self._rtp_origin = rtp_origin
        channel.bufferedAmountLowThreshold = _LOW_WATER_BYTES
        channel.on("message", self._on_message)
        channel.on("bufferedamountlow", self._drained.set)
        channel.on("close", lambda: self.lose(PeerGone("the peer closed the data channel")))

    async def receive(self) -> str | bytes:
        """Wait for a message, or a piece of the microphone track."""
        while True:
            if self._incoming:
                message = self._incoming.popleft()
                self._waiting_bytes -= len(message)
                return message
            if self._gone is not None:
                raise self._gone
            if self._mic:
                return self._mic.popleft()
            self._came.clear()
            await self._came.wait()

    async def send(self, frame: str | bytes) -> None:
        """Send a message, or let the track take a frame of audio."""
        if isinstance(frame, bytes):
            await self._audio.put(frame)
            return
        while self._gone is None and self._channel.bufferedAmount > _HIGH_WATER_BYTES:
            self._drained.clear()
            await self._drained.wait()
        self._say(frame)

    async def close(self, code: int, reason: str) -> None:
        """Let what waits leave, then close the channel; a data channel has no closing codes."""
        self._channel.bufferedAmountLowThreshold = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                while self._gone is None and self._channel.bufferedAmount:
                    self._drained.clear()
                    await self._drained.wait()
        if self._gone is not None:
            raise self._gone
        self._channel.close()

    def abort(self) -> None:
        """Give the call up; whoever owns it closes it when the session has ended."""
        self.lose(PeerGone("dropped"))

    def unsent_bytes(self) -> int:
        """What the channel and the track have not taken."""
        return self._channel.bufferedAmount + self._audio.waiting_bytes

    def lose(self, why: PeerGone | None = None) -> None:
        """The call is over; the session hears it when it has read what came before."""
        if self._gone is None:
            self._gone = why or PeerLost("the call broke")
            self._audio.close()
            self._came.set()
            self._drained.set()

    def hear(self, data: bytes) -> None:
        """Take a piece of the microphone track."""
        self._mic.append(TrackAudio(data))
        self._came.set()

    def frame_leaves(self, header: AudioHeader, pts: int) -> None:
        """Tell the peer at which RTP time an utterance sounds, at its start and after each gap."""
        origin = self._rtp_origin()
        name = self._names.get(header.number)
        if origin is None or name is None:
            return
        follows = (header.number, header.sample, pts) == self._next
        self._next = header.number, header.sample + FRAME_SAMPLES, pts + FRAME_SAMPLES
        if follows:
            return
        message = TrackPosition(
            id=name, sample=header.sample, rtp_timestamp=(origin + pts) & 0xFFFFFFFF
        )
        if self._gone is None and self._channel.readyState == "open":
            self._channel.send(message.to_json())

    def _say(self, text: str) -> None:
        if self._gone is not None:
            raise self._gone
        if self._channel.readyState != "open":
            raise PeerGone("the data channel is closed")
        if '"utterance.started"' in text[:40]:
            message = parse_server_message(text)
            if isinstance(message, UtteranceStarted):
                self._names = {message.number: message.id}
        try:
            self._channel.send(text)
        except ValueError as error:
            raise PeerGone("the peer takes no message of that length") from error

    def _on_message(self, message: str | bytes) -> None:
        self._incoming.append(message)
        self._waiting_bytes += len(message)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.lose(PeerGone("the peer sends more than the session reads"))
        self._came.set()
