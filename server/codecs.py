"""Compressed output through PyAV: Opus in Ogg, MP3, FLAC, AAC in ADTS."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import av
import numpy as np

from cosyvoice_stream.server.encoders import Encoder, check_finite
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.streaming.framer import Framer
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.types import Samples


@dataclass(frozen=True)
class Codec:
    """How a format is made."""

    container: str
    codec: str
    sample_format: str
    mime: str
    bit_rate: int | None = None
    """Bits per second; None where the signal decides."""
    container_options: dict[str, str] = field(default_factory=dict)
    codec_options: dict[str, str] = field(default_factory=dict)
    block_ms: int | None = None
    """About the length of a block; None where the codec fixes its samples."""
    heavy: bool = True
    """100 ms of audio take a millisecond of one core or more, at one of the rates at least."""


CODECS: Final = {
    # Pages of 20 ms: a page is sent when it is full, and one packet fills it.
    "opus": Codec(
        "ogg",
        "libopus",
        "s16",
        "audio/ogg;codecs=opus",
        48_000,
        {"page_duration": "20000", "flush_packets": "1"},
        {"application": "audio", "frame_duration": "20", "vbr": "on"},
    ),
    # No Xing frame: it would be written at the end, into a file that has been sent already. No bit
    # reservoir: a frame that lends bits to a later one is kept back, up to 80 ms at 44100 Hz.
    "mp3": Codec(
        "mp3",
        "libmp3lame",
        "s16p",
        "audio/mpeg",
        64_000,
        {"write_xing": "0", "id3v2_version": "0", "flush_packets": "1"},
        {"reservoir": "0"},
    ),
    # FFmpeg's own choice of block would hold back 100 ms; short ones cost 2 to 7 % of the size.
    "flac": Codec(
        "flac",
        "flac",
        "s16",
        "audio/flac",
        container_options={"flush_packets": "1"},
        block_ms=20,
        heavy=False,
    ),
    "aac": Codec("adts", "aac", "fltp", "audio/aac", 64_000, {"flush_packets": "1"}),
}


def _block_samples(sample_rate: int, block_ms: int) -> int:
    """Round to what FLAC can halve five times: without that a block takes a quarter more bytes."""
    return round(sample_rate * block_ms / 1000 / 32) * 32


class _Sink:
    """Receives what the muxer writes. It cannot seek, so no header is patched afterwards."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> list[bytes]:
        joined = b"".join(self._pieces)
        self._pieces.clear()
        return [joined] if joined else []


class CodecEncoder(Encoder):
    """Encodes one utterance with FFmpeg.

    While it is open it takes 0.2 MB (Opus) to 7.4 MB (FLAC), and PyAV's filter graph keeps idle
    threads, about one a core; `flush` and `close` give all that back.
    """

    def __init__(self, encoding: str, engine_rate: int, sample_rate: int) -> None:
        codec = CODECS[encoding]
        self.encoding = encoding
        self.sample_rate = sample_rate
        self.mime = codec.mime
        self.heavy = codec.heavy
        self._format = codec.sample_format
        self._resampler = Resampler(engine_rate, sample_rate)
        self._sink = _Sink()
        container = av.open(
            self._sink,
            "w",
            format=codec.container,
            container_options=codec.container_options,
            buffer_size=1024,
        )
        options = dict(codec.codec_options)
        if codec.block_ms is not None:
            options["frame_size"] = str(_block_samples(sample_rate, codec.block_ms))
        stream = container.add_stream(codec.codec, rate=sample_rate, options=options)
        assert isinstance(stream, av.AudioStream)
        stream.codec_context.layout = "mono"
        stream.codec_context.format = av.AudioFormat(codec.sample_format)
        if codec.bit_rate is not None:
            stream.codec_context.bit_rate = codec.bit_rate
        stream.codec_context.open()
        self._open: tuple[av.container.OutputContainer, av.AudioStream] | None = container, stream
        self._time_base = Fraction(1, sample_rate)
        self._framer = Framer(stream.codec_context.frame_size)

    def push(self, samples: Samples) -> list[bytes]:
        """See `Encoder.push`."""
        check_finite(samples)
        self._encode(self._resampler.push(samples))
        return self._sink.take()

    def flush(self) -> list[bytes]:
        """See `Encoder.flush`."""
        if self._open is None:
            return []
        self._encode(self._resampler.flush())
        for rest in self._framer.flush():
            self._encode_frame(rest)
        self._mux(None)
        self.close()
        return self._sink.take()

    def close(self) -> None:
        """See `Encoder.close`."""
        if self._open is not None:
            container, _ = self._open
            self._open = None
            container.close()

    def _encode(self, pieces: list[Samples]) -> None:
        for piece in pieces:
            for frame in self._framer.push(piece):
                self._encode_frame(frame)

    def _encode_frame(self, samples: Samples) -> None:
        clipped = np.clip(samples, -1.0, 1.0)
        data = clipped if self._format == "fltp" else pcm.to_int16(clipped)
        frame = av.AudioFrame.from_ndarray(data[None], format=self._format, layout="mono")
        frame.sample_rate = self.sample_rate
        frame.time_base = self._time_base
        frame.pts = self.samples_in
        self.samples_in += len(samples)
        self._mux(frame)

    def _mux(self, frame: av.AudioFrame | None) -> None:
        if self._open is None:
            raise ValueError("the encoder is closed")
        container, stream = self._open
        container.mux(stream.encode(frame))
