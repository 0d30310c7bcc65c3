"""Audio of one call, packet by packet: samples ↔ payloads of the agreed codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Final

import numpy as np

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.streaming import g711, pcm
from cosyvoice_stream.telephony.sdp_answer import CodecKind
from cosyvoice_stream.types import Samples

_OPUS_MS: Final = (10, 20, 40, 60)
"""Packets by the configuration of their first byte (RFC 6716, section 3.1), SILK and hybrid."""
_OPUS_BITS_PER_S: Final = 32_000
MAX_PAYLOAD_MS: Final = 120
"""Longest packet that is decoded."""


class PacketCodec(ABC):
    """Both directions of one call; has a state, so that packets are taken in order.

    Args:
        kind: What was agreed on.
        ptime_ms: Length of the packets that are sent.
    """

    def __init__(self, kind: CodecKind, ptime_ms: int) -> None:
        self.kind = kind
        self.ptime_ms = ptime_ms
        self.sample_rate = kind.sample_rate
        self.frame_samples = kind.sample_rate * ptime_ms // 1000
        self.frame_ticks = kind.clock_hz * ptime_ms // 1000

    @abstractmethod
    def encode(self, samples: Samples) -> bytes:
        """Make the payload of `frame_samples` samples at `sample_rate`."""

    @abstractmethod
    def decode(self, payload: bytes) -> Samples:
        """Read a payload.

        Raises:
            InvalidMessage: It is none of this codec.
        """

    @abstractmethod
    def ticks_of(self, payload: bytes) -> int:
        """Length of a payload on the RTP clock; 0 for what cannot be one."""

    def samples_of(self, ticks: int) -> int:
        """Samples in so many ticks."""
        return ticks * self.sample_rate // self.kind.clock_hz


class _Bytewise(PacketCodec):
    """One byte a tick: µ-law, A-law."""

    def encode(self, samples: Samples) -> bytes:
        values = pcm.to_int16(samples)
        encode = g711.encode_mulaw if self.kind.name == "pcmu" else g711.encode_alaw
        return encode(values).tobytes()

    def decode(self, payload: bytes) -> Samples:
        decode = g711.decode_mulaw if self.kind.name == "pcmu" else g711.decode_alaw
        return pcm.from_int16(decode(np.frombuffer(payload, np.uint8)))

    def ticks_of(self, payload: bytes) -> int:
        return _bounded(len(payload), self.kind.clock_hz)


class _Linear(PacketCodec):
    """16-bit samples, most significant byte first (RFC 3551, section 4.5.11)."""

    def encode(self, samples: Samples) -> bytes:
        return pcm.to_int16(samples).astype(">i2").tobytes()

    def decode(self, payload: bytes) -> Samples:
        if len(payload) % 2:
            raise InvalidMessage("an L16 payload has whole samples")
        return pcm.from_int16(np.frombuffer(payload, ">i2").astype(np.int16))

    def ticks_of(self, payload: bytes) -> int:
        return _bounded(len(payload) // 2, self.kind.clock_hz)


class _Compressed(PacketCodec):
    """G.722 and Opus, by FFmpeg."""

    def __init__(self, kind: CodecKind, ptime_ms: int) -> None:
        super().__init__(kind, ptime_ms)
        import av

        self._av = av
        opus = kind.encoding == "opus"
        name = "libopus" if opus else "g722"
        encoder = av.CodecContext.create(name, "w")
        assert isinstance(encoder, av.AudioCodecContext)
        encoder.sample_rate = kind.sample_rate
        encoder.layout = "mono"
        encoder.format = "s16"
        encoder.time_base = Fraction(1, kind.sample_rate)
        if opus:
            encoder.bit_rate = _OPUS_BITS_PER_S
            encoder.options = {
                "application": "voip",
                "frame_duration": str(ptime_ms),
                "fec": "1",
                "packet_loss": "5",
            }
        decoder = av.CodecContext.create("libopus" if opus else "g722", "r")
        assert isinstance(decoder, av.AudioCodecContext)
        decoder.sample_rate = kind.sample_rate
        decoder.layout = "mono"
        if not opus:
            decoder.format = "s16"
        self._encoder, self._decoder = encoder, decoder
        self._sent = 0

    def encode(self, samples: Samples) -> bytes:
        frame = self._av.AudioFrame.from_ndarray(
            pcm.to_int16(samples)[None], format="s16", layout="mono"
        )
        frame.sample_rate = self.kind.sample_rate
        frame.pts = self._sent
        frame.time_base = Fraction(1, self.kind.sample_rate)
        self._sent += len(samples)
        return b"".join(bytes(packet) for packet in self._encoder.encode(frame))

    def decode(self, payload: bytes) -> Samples:
        try:
            frames = self._decoder.decode(self._av.Packet(payload))
        except self._av.FFmpegError as error:
            raise InvalidMessage(f"this is no {self.kind.name} payload") from error
        pieces = [_mono(frame.to_ndarray()) for frame in frames]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def ticks_of(self, payload: bytes) -> int:
        if self.kind.encoding == "opus":
            return _opus_ticks(payload)
        return _bounded(len(payload), self.kind.clock_hz)


def _mono(values: np.ndarray) -> Samples:
    """One channel of whatever layout a decoder gives, as float32."""
    first = values[0]
    if first.dtype == np.int16:
        return pcm.from_int16(first)
    samples: Samples = first.astype(np.float32)
    return samples


def _bounded(ticks: int, clock_hz: int) -> int:
    return ticks if ticks <= clock_hz * MAX_PAYLOAD_MS // 1000 else 0


def _opus_ticks(payload: bytes) -> int:
    """Length of an Opus packet at 48 kHz, by its first bytes (RFC 6716, section 3.1)."""
    if not payload:
        return 0
    configuration, code = payload[0] >> 3, payload[0] & 3
    if configuration < 12:
        frame = _OPUS_MS[configuration & 3] * 48
    elif configuration < 16:
        frame = _OPUS_MS[configuration & 1] * 48
    else:
        frame = 120 << (configuration & 3)
    count = (1, 2, 2, payload[1] & 0x3F if len(payload) > 1 else 0)[code]
    return _bounded(frame * count, 48_000)


def make_codec(kind: CodecKind, ptime_ms: int) -> PacketCodec:
    """Make the codec of one call."""
    if kind.encoding in ("PCMU", "PCMA"):
        return _Bytewise(kind, ptime_ms)
    return _Linear(kind, ptime_ms) if kind.encoding == "L16" else _Compressed(kind, ptime_ms)
