"""The voice of a call as an RTP stream: 20 ms Opus packets from its first moment to its last.

::

    session ──► CallAudio ──► CallTrack.recv ──► aiortc ──► RTP
              one frame          │ paced by FrameClock; silence where there is no frame
              waits

The session hands over a frame at a time and waits until it is taken, so what has not left is still
in its outbox, where a cancel finds it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import av
import numpy as np
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from numpy.typing import NDArray

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.wire import AudioHeader, OutputSettings
from cosyvoice_stream.streaming.frame_clock import FrameClock

RATE_HZ: Final = 48_000
FRAME_MS: Final = 20
FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1000
TRACK_OUTPUT: Final = OutputSettings(
    encoding="pcm_s16le", sample_rate=RATE_HZ, frame_ms=FRAME_MS, buffer_ms=0
)
"""The form in which a session makes the audio of a call."""

_FRAME_BYTES: Final = 2 * FRAME_SAMPLES
_TIME_BASE: Final = Fraction(1, RATE_HZ)
_GRACE_S: Final = 0.008
"""How long a frame of an utterance may be late before silence takes its place: time for the tasks
between the engine and here to have their turn, and less than a receiver's smallest buffer."""
_SETTLED_FRAMES: Final = 25
"""Of silence in a row, after which the encoder's answer no longer changes and is sent again."""
_RELAY_PACKETS: Final = 10
_LATENESS_KEPT: Final = 3000
"""Packets (one minute) that the statistics of a call look back."""


class OpusPackets:
    """Encodes frames of `FRAME_SAMPLES`, one packet each.

    aiortc's own encoder makes stereo at 96 kbit/s without redundancy, in a thread for each frame.
    Mono speech needs a third of that, and a frame takes less time than a change of threads.

    Args:
        bit_rate: In bits per second.
        loss_percent: Loss that the in-band redundancy (FEC) is meant for; 0 sends none.
    """

    def __init__(self, bit_rate: int, loss_percent: int) -> None:
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, av.AudioCodecContext)
        codec.bit_rate = bit_rate
        codec.format = av.AudioFormat("s16")
        codec.layout = "mono"
        codec.sample_rate = RATE_HZ
        codec.time_base = _TIME_BASE
        codec.options = {
            "application": "voip",
            "frame_duration": str(FRAME_MS),
            "fec": "1" if loss_percent else "0",
            "packet_loss": str(loss_percent),
            # Half of the default's effort takes a fifth of its time; speech sounds the same.
            "compression_level": "5",
        }
        self._codec = codec
        self._silent = 0
        self._silence = b""

    def encode(self, samples: NDArray[np.int16] | None) -> bytes:
        """Encode the next frame; None is silence."""
        if samples is not None:
            self._silent = 0
            return self._pack(samples)
        self._silent += 1
        if self._silent <= _SETTLED_FRAMES:
            self._silence = self._pack(np.zeros(FRAME_SAMPLES, np.int16))
        return self._silence

    def _pack(self, samples: NDArray[np.int16]) -> bytes:
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        frame.time_base = _TIME_BASE
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))


class CallAudio:
    """Hands one frame after another from a session to its track."""

    def __init__(self) -> None:
        self._frame: bytes | None = None
        self._came = asyncio.Event()
        self._taken = asyncio.Event()
        self._closed = False
        self._speaking = False
        self.frames = 0
        """Frames with audio that were taken."""
        self.underruns = 0
        """Times that an utterance had no frame when one was due."""

    @property
    def waiting_bytes(self) -> int:
        """Of a frame that has not been taken."""
        return 0 if self._frame is None else len(self._frame)

    async def put(self, frame: bytes) -> None:
        """Hand over a frame with its `AudioHeader`; return when it is taken.

        Raises:
            PeerGone: There is no track any more.
        """
        while self._frame is not None and not self._closed:
            await self._wait_taken()
        self._frame = frame
        self._came.set()
        while self._frame is frame and not self._closed:
            await self._wait_taken()
        if self._closed:
            raise PeerGone("the call is over")

    async def take(self) -> bytes | None:
        """The next frame; None where nothing is to be said, or it is late."""
        if self._frame is None and self._speaking:
            try:
                async with asyncio.timeout(_GRACE_S):
                    await self._came.wait()
            except TimeoutError:
                self.underruns += 1
                self._speaking = False
        frame, self._frame = self._frame, None
        self._came.clear()
        if frame is not None:
            self.frames += 1
            self._speaking = not AudioHeader.unpack(frame).last
            self._taken.set()
        return frame

    def close(self) -> None:
        """Nobody takes frames any more."""
        self._closed = True
        self._taken.set()
        self._came.set()

    async def _wait_taken(self) -> None:
        self._taken.clear()
        await self._taken.wait()


class CallTrack(MediaStreamTrack):
    """The outgoing track of a call.

    Args:
        audio: Where its frames come from.
        packets: Encodes them.
        on_frame: Told the header and the time stamp of each frame with audio, before it leaves.
        clock: In seconds, monotonic.
    """

    kind = "audio"

    def __init__(
        self,
        audio: CallAudio,
        packets: OpusPackets,
        on_frame: Callable[[AudioHeader, int], None],
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self._audio = audio
        self._packets = packets
        self._on_frame = on_frame
        self._now = clock
        self._clock = FrameClock(FRAME_MS / 1000)
        self._left_at: float | None = None
        self.followers: set[RelayTrack] = set()
        self.pts = 0
        """Time stamp of the next packet, in samples."""
        self.lateness_s: deque[float] = deque(maxlen=_LATENESS_KEPT)
        """How far packets were behind the end of the one before, plus a frame."""

    async def recv(self) -> av.Packet[Any]:
        """The next packet, when it is due."""
        if self.readyState != "live":
            raise MediaStreamError
        if (wait_s := self._clock.next(self._now())) > 0:
            await asyncio.sleep(wait_s)
        frame = await self._audio.take()
        data = self._packets.encode(self._samples(frame))
        for follower in tuple(self.followers):
            follower.give(data)
        packet = av.Packet(data)
        packet.pts = self.pts
        packet.time_base = _TIME_BASE
        self.pts += FRAME_SAMPLES
        self._note_leaving()
        return packet

    def follow(self) -> RelayTrack:
        """A track that sends the same packets, from now on."""
        relay = RelayTrack(self)
        self.followers.add(relay)
        return relay

    def stop(self) -> None:
        """End; what the session still hands over is refused."""
        super().stop()
        self._audio.close()

    def _samples(self, frame: bytes | None) -> NDArray[np.int16] | None:
        if frame is None:
            return None
        self._on_frame(AudioHeader.unpack(frame), self.pts)
        data = frame[AudioHeader.SIZE :]
        if not data:
            return None
        return np.frombuffer(data.ljust(_FRAME_BYTES, b"\0"), "<i2")

    def _note_leaving(self) -> None:
        now = self._now()
        if self._left_at is not None:
            self.lateness_s.append(abs(now - self._left_at - FRAME_MS / 1000))
        self._left_at = now


class RelayTrack(MediaStreamTrack):
    """Sends the packets of a `CallTrack` to one more peer, at the pace at which they are made."""

    kind = "audio"

    def __init__(self, source: CallTrack) -> None:
        super().__init__()
        self._source = source
        self._held: deque[bytes] = deque(maxlen=_RELAY_PACKETS)
        self._came = asyncio.Event()
        self.pts = 0
        """Time stamp of the next packet, in samples."""

    def give(self, data: bytes) -> None:
        """Take a packet; the oldest one is lost where the peer does not keep up."""
        self._held.append(data)
        self._came.set()

    async def recv(self) -> av.Packet[Any]:
        """The next packet, when the call sends it."""
        while not self._held:
            if self.readyState != "live":
                raise MediaStreamError
            self._came.clear()
            await self._came.wait()
        packet = av.Packet(self._held.popleft())
        packet.pts = self.pts
        packet.time_base = _TIME_BASE
        self.pts += FRAME_SAMPLES
        return packet

    def stop(self) -> None:
        """End."""
        super().stop()
        self._source.followers.discard(self)
        self._came.set()
