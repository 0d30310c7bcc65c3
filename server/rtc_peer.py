"""One WebRTC connection: its tracks, its data channel, and how it is closed."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import av
from aiortc import MediaStreamTrack, RTCDataChannel, RTCPeerConnection
from aiortc.mediastreams import MediaStreamError

from cosyvoice_stream.server.rtc_track import (
    FRAME_MS,
    FRAME_SAMPLES,
    CallAudio,
    CallTrack,
    OpusPackets,
)

logger = logging.getLogger(__name__)

MIC_RATE_HZ: Final = 16_000
_CLOSE_S: Final = 5.0
"""For closing a connection whose other side does not answer."""

Hear = Callable[[bytes], None]
"""Takes the microphone: 16-bit mono at `MIC_RATE_HZ`."""


class Peer:
    """One connection.

    Args:
        connection: Not connected yet.
        audio: Of its outgoing track, which is `track`; None for one that has no voice of its own.
        packets: Encodes that.
        source: Whose packets it is sent, where it has none of its own.
    """

    def __init__(
        self,
        connection: RTCPeerConnection,
        *,
        audio: CallAudio | None,
        packets: OpusPackets | None,
        source: CallTrack | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.connection = connection
        self.audio = audio
        self.began_at = time.monotonic()
        self.session_id: str | None = None
        self.on_frame: Callable[..., None] = _nothing
        """Told about every frame that leaves."""
        self.hear: Hear = _nothing
        self.channel: asyncio.Future[RTCDataChannel] = asyncio.Future()
        self.connected = asyncio.Event()
        self.over = asyncio.Event()
        self.track: CallTrack | None = None
        self._rtp_origin: int | None = None
        self._mic: asyncio.Task[None] | None = None
        if audio is not None and packets is not None:
            self.track = CallTrack(
                audio, packets, lambda *frame: self.on_frame(*frame), time.monotonic
            )
            connection.addTrack(self.track)
        elif source is not None:
            connection.addTrack(source.follow())
        connection.on("connectionstatechange", self._on_state)
        connection.on("datachannel", self._on_channel)
        connection.on("track", self._on_track)

    def rtp_origin(self) -> int | None:
        """RTP time stamp of the first packet; None until one has left."""
        if self._rtp_origin is None and self.track is not None and self.track.pts:
            # aiortc draws it in a local variable; what it sent last is the only trace.
            sender = self.connection.getSenders()[0]
            sent: int = sender._RTCRtpSender__rtp_timestamp  # type: ignore[attr-defined]
            packets: int = sender._RTCRtpSender__packet_count  # type: ignore[attr-defined]
            if packets:
                self._rtp_origin = (sent - (packets - 1) * FRAME_SAMPLES) & 0xFFFFFFFF
        return self._rtp_origin

    def received_packets(self) -> int:
        """Everything that has come from the peer, of any kind."""
        received = 0
        for transport in self.transports():
            for stat in transport._get_stats().values():
                received += stat.packetsReceived
        return received

    async def stats(self) -> dict[str, Any]:
        """What an operator wants to know of the call."""
        report: dict[str, Any] = {
            "id": self.id[:6],
            "session": self.session_id,
            "state": self.connection.connectionState,
            "age_s": round(time.monotonic() - self.began_at, 1),
            "packets_received": self.received_packets(),
        }
        for stat in (await self.connection.getStats()).values():
            if stat.type == "outbound-rtp":
                report |= {"packets_sent": stat.packetsSent, "bytes_sent": stat.bytesSent}
            elif stat.type == "remote-inbound-rtp":
                rtt = stat.roundTripTime
                report |= {
                    "packets_lost": stat.packetsLost,
                    "jitter_ms": round(stat.jitter / 48, 1),
                    "round_trip_ms": None if rtt is None else round(rtt * 1000, 1),
                }
        if self.audio is not None and self.track is not None:
            late = sorted(self.track.lateness_s)
            p99 = late[int(len(late) * 0.99)] * 1000 if late else 0.0
            report |= {
                "audio_ms": self.audio.frames * FRAME_MS,
                "underruns": self.audio.underruns,
                "send_jitter_p99_ms": round(p99, 2),
            }
        return report

    async def close(self) -> None:
        """Free everything."""
        if self._mic is not None:
            self._mic.cancel()
            await asyncio.gather(self._mic, return_exceptions=True)
        if self.audio is not None:
            self.audio.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.connection.close()
        except TimeoutError:
            logger.warning("a call did not close within %g s", _CLOSE_S)
        self.channel.cancel()
        self.over.set()

    def transports(self) -> set[Any]:
        """The DTLS transports; one where everything is bundled."""
        found = {t.receiver.transport for t in self.connection.getTransceivers()}
        if self.connection.sctp is not None:
            found.add(self.connection.sctp.transport)
        return found

    def _on_state(self) -> None:
        state = self.connection.connectionState
        if state == "connected":
            self.connected.set()
        elif state in ("failed", "closed"):
            self.over.set()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if self.channel.done():
            channel.close()
        else:
            self.channel.set_result(channel)

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio" and self._mic is None:
            self._mic = asyncio.create_task(self._listen(track), name="call microphone")

    async def _listen(self, track: MediaStreamTrack) -> None:
        """Take every frame: aiortc queues what nobody takes, without a limit."""
        resampler = av.AudioResampler(format="s16", layout="mono", rate=MIC_RATE_HZ)
        with suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, av.AudioFrame)
                frame.pts = None  # a gap in the stream is no gap in what a listener hears
                for piece in resampler.resample(frame):
                    self.hear(piece.to_ndarray().tobytes())


def _nothing(*_: object) -> None:
    """Nobody has said what to do."""
