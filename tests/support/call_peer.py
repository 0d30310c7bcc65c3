"""A WebRTC peer for tests: aiortc on its own, with everything that it received."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
import soxr
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from numpy.typing import NDArray

from support.listening import REFERENCES, read_wav
from support.served import Served

PATIENCE_S = 15.0
RATE_HZ = 48_000
FRAME = 960
QUIET = 0.003
"""Below it is silence: what a lossy codec makes of zeros."""


class Microphone(MediaStreamTrack):
    """Plays samples (int16, mono, 48 kHz) in real time, then silence."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._samples = np.zeros(0, np.int16)
        self._start: float | None = None
        self._pts = 0

    def say(self, samples: NDArray[np.int16]) -> None:
        """Append to what is played."""
        self._samples = np.concatenate([self._samples, samples])

    async def recv(self) -> av.AudioFrame:
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        await asyncio.sleep(max(0.0, self._start + self._pts / RATE_HZ - now))
        piece, self._samples = self._samples[:FRAME], self._samples[FRAME:]
        frame = av.AudioFrame.from_ndarray(
            np.pad(piece, (0, FRAME - len(piece)))[None], format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, self._pts, Fraction(1, RATE_HZ)
        self._pts += FRAME
        return frame


class CallPeer:
    """Calls a server. Everything it gets is kept in order of arrival."""

    def __init__(self, microphone: Microphone | None = None) -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.messages: list[dict[str, Any]] = []
        self.packets: list[tuple[int, float]] = []
        """RTP time stamp and arrival of every packet."""
        self.decoded: list[tuple[int, NDArray[np.float32]]] = []
        """RTP time and samples of every frame that came out of the jitter buffer and decoder."""
        self._read = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        if microphone is None:
            self.connection.addTransceiver("audio", direction="recvonly")
        else:
            self.connection.addTrack(microphone)
        self.connection.on("track", self._on_track)
        self._watch_packets()
        self._open_channel()

    def _open_channel(self) -> None:
        self.channel = self.connection.createDataChannel("cosyvoice-stream.v1")
        self.channel.on("message", self._on_message)

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return self.connection.localDescription.sdp

    async def connect(self, served: Served, **headers: str) -> dict[str, Any]:
        """Call, and wait for the greeting."""
        reply = await served.post_json(
            "/v1/webrtc/offer", {"type": "offer", "sdp": await self.offer()}, **headers
        )
        assert reply.status == 201, reply.body
        answer = reply.json()
        await self.connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
        assert (await self.message("session.ready"))["session"] == answer["session"]
        return dict(answer)

    def send(self, **message: Any) -> None:
        self.channel.send(json.dumps(message))

    async def message(self, *types: str) -> dict[str, Any]:
        """The next message of these types; others before it are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self._read < len(self.messages):
                    message = self.messages[self._read]
                    self._read += 1
                    if message["type"] in types:
                        return message
                await self._change()

    async def until(self, condition: Any) -> None:
        """Wait until a condition on what has come holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._change()

    async def sound(self, after: int = 0) -> None:
        """Wait for sound, in frames from number `after` on."""
        await self.until(lambda: any(is_loud(f) for _, f in self.decoded[after:]))

    async def silence(self, frames: int = 5) -> None:
        """Wait until the last frames that came are silent."""
        await self.until(
            lambda: (
                len(self.decoded) > frames
                and not any(is_loud(f) for _, f in self.decoded[-frames:])
            )
        )

    async def close(self) -> None:
        await self.connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def samples(self) -> NDArray[np.float32]:
        """All that was decoded, mono."""
        return np.concatenate([samples for _, samples in self.decoded])

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_message(self, text: str) -> None:
        self.messages.append(json.loads(text))
        self._changed.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._tasks.append(asyncio.create_task(self._decode(track)))

    async def _decode(self, track: MediaStreamTrack) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                samples = frame.to_ndarray().reshape(-1, 2)[:, 0].astype(np.float32) / 32768
                self.decoded.append((frame.pts, samples))
                self._changed.set()

    def _watch_packets(self) -> None:
        receiver = self.connection.getReceivers()[0]
        handle = receiver._handle_rtp_packet

        async def watched(packet: Any, arrival_time_ms: int) -> None:
            self.packets.append((packet.timestamp, time.monotonic()))
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = watched  # type: ignore[method-assign]


def is_loud(samples: NDArray[np.float32]) -> bool:
    return bool(np.abs(samples).max() > QUIET)


def somebody() -> NDArray[np.int16]:
    """A voice for a microphone: int16 at 48 kHz."""
    samples, rate = read_wav(REFERENCES / "festival_ked_male.wav")
    return (soxr.resample(samples, rate, RATE_HZ) * 32767).astype(np.int16)


@contextlib.asynccontextmanager
async def calling(
    served: Served, microphone: Microphone | None = None, **headers: str
) -> AsyncIterator[CallPeer]:
    """A peer whose session has begun."""
    peer = CallPeer(microphone)
    try:
        await peer.connect(served, **headers)
        yield peer
    finally:
        await peer.close()


async def nobody_left(served: Served) -> None:
    """Wait until the server has freed every peer and session."""
    peers = served.services.peers
    assert peers is not None
    async with asyncio.timeout(PATIENCE_S):
        while peers.live or served.services.sessions.live:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)
