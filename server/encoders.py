"""Engine samples → bytes of an output format, incrementally."""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Final

import numpy as np

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.server.wire_settings import (
    ENCODINGS,
    FRAME_MS_RANGE,
    OPUS_RATES,
    SAMPLE_RATES,
)
from cosyvoice_stream.streaming import g711, pcm
from cosyvoice_stream.streaming.framer import Framer
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.types import Samples

WAV_HEADER_BYTES: Final = 44
STREAMING_BYTES: Final = 0x7FFF_FF00
"""Length of the samples in a WAV header whose file has no known end. Readers take it as "until the
end"; unlike 0xFFFFFFFF it stays positive for those that read a signed number."""

PLAIN: Final = ("pcm_s16le", "pcm_f32le", "wav", "mulaw", "alaw")
COMPRESSED: Final = ("opus", "mp3", "flac", "aac")


class Encoder(ABC):
    """Encodes one utterance.

    Cutting the samples differently changes how the bytes are cut, never the bytes.
    """

    encoding: str
    sample_rate: int
    """Of the encoded audio, in hertz."""
    channels = 1
    bytes_per_sample: int | None = None
    """None for compressed audio."""
    byte_order: str | None = None
    """``"little"`` where a sample has more than one byte."""
    mime: str
    heavy = False
    """A push takes long enough to be worth a thread."""
    samples_in = 0
    """Samples, at `sample_rate`, that the codec has been given."""

    @abstractmethod
    def push(self, samples: Samples) -> list[bytes]:
        """Append engine samples and take the bytes that are ready.

        Raises:
            ValueError: A sample is not finite.
        """

    @abstractmethod
    def flush(self) -> list[bytes]:
        """End the utterance and take the rest."""

    @abstractmethod
    def close(self) -> None:
        """Free what the codec holds; for an utterance that is given up. Safe to call twice."""


def check_finite(samples: Samples) -> None:
    """Refuse what no listener may ever be sent."""
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite numbers")


def wav_header(sample_rate: int, data_bytes: int = STREAMING_BYTES) -> bytes:
    """RIFF header of 16-bit mono audio, 44 bytes.

    Args:
        sample_rate: In hertz.
        data_bytes: Bytes of samples that follow; the default stands for a stream.
    """
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        data_bytes + WAV_HEADER_BYTES - 8,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        sample_rate,
        2 * sample_rate,
        2,
        16,
        b"data",
        data_bytes,
    )


def _to_mulaw(samples: Samples) -> bytes:
    return g711.encode_mulaw(pcm.to_int16(samples)).tobytes()


def _to_alaw(samples: Samples) -> bytes:
    return g711.encode_alaw(pcm.to_int16(samples)).tobytes()


PACK: Final[dict[str, tuple[Callable[[Samples], bytes], int, str]]] = {
    "pcm_s16le": (pcm.to_s16le, 2, "audio/pcm"),
    "pcm_f32le": (pcm.to_f32le, 4, "audio/pcm"),
    "wav": (pcm.to_s16le, 2, "audio/wav"),
    "mulaw": (_to_mulaw, 1, "audio/PCMU"),
    "alaw": (_to_alaw, 1, "audio/PCMA"),
}
"""Encoding → packs samples, bytes of a sample, MIME type."""


class PlainEncoder(Encoder):
    """One fixed number of bytes a sample, with a header in front for ``wav``."""

    def __init__(self, encoding: str, engine_rate: int, sample_rate: int, frame_ms: int) -> None:
        pack, width, mime = PACK[encoding]
        self.encoding = encoding
        self.sample_rate = sample_rate
        self.bytes_per_sample = width
        self.byte_order = "little" if width > 1 else None
        self.mime = f"{mime};rate={sample_rate};channels=1" if encoding != "wav" else mime
        self._pack = pack
        self._resampler = Resampler(engine_rate, sample_rate)
        self._framer = Framer(sample_rate * frame_ms // 1000) if frame_ms else None
        self._header = wav_header(sample_rate) if encoding == "wav" else b""

    def push(self, samples: Samples) -> list[bytes]:
        """See `Encoder.push`."""
        check_finite(samples)
        return self._encode(self._resampler.push(samples), end=False)

    def flush(self) -> list[bytes]:
        """See `Encoder.flush`."""
        return self._encode(self._resampler.flush(), end=True)

    def close(self) -> None:
        """See `Encoder.close`."""
        self._resampler.reset()

    def _encode(self, pieces: list[Samples], *, end: bool) -> list[bytes]:
        self.samples_in += sum(map(len, pieces))
        if self._framer is not None:
            pieces = [frame for piece in pieces for frame in self._framer.push(piece)]
            if end:
                pieces += self._framer.flush()
        encoded = [self._pack(piece) for piece in pieces]
        if self._header and (encoded or end):
            encoded = [self._header + (encoded[0] if encoded else b""), *encoded[1:]]
            self._header = b""
        return encoded


def check_output(encoding: str, sample_rate: int, frame_ms: int) -> None:
    """Refuse an output that no encoder makes.

    Raises:
        UnsupportedFormat: Says which values there are.
    """
    if encoding not in ENCODINGS:
        raise UnsupportedFormat(
            f"the encoding {encoding!r} is not available",
            how_to_fix=f"use one of {', '.join(ENCODINGS)}",
        )
    rates = OPUS_RATES if encoding == "opus" else SAMPLE_RATES
    if sample_rate not in rates:
        raise UnsupportedFormat(
            f"{encoding} is not available at {sample_rate} Hz",
            how_to_fix=f"use one of {', '.join(map(str, rates))}",
        )
    shortest_ms, longest_ms = FRAME_MS_RANGE
    if frame_ms and not shortest_ms <= frame_ms <= longest_ms:
        raise UnsupportedFormat(
            f"frames of {frame_ms} ms are not available",
            how_to_fix=f"use 0 or a number from {shortest_ms} to {longest_ms}",
        )


def make_encoder(encoding: str, engine_rate: int, sample_rate: int, frame_ms: int) -> Encoder:
    """Make the encoder of one utterance.

    Args:
        encoding: One of `ENCODINGS`.
        engine_rate: Rate of the samples that will be pushed, in hertz.
        sample_rate: Rate of the encoded audio, one of `SAMPLE_RATES`.
        frame_ms: 0, or the length of every piece of uncompressed audio, in whole samples (10 ms
            at 22050 Hz are 220) and besides the header of ``wav``; ignored for the others.

    Raises:
        UnsupportedFormat: Something of this is not available.
    """
    check_output(encoding, sample_rate, frame_ms)
    if encoding in PLAIN:
        return PlainEncoder(encoding, engine_rate, sample_rate, frame_ms)
    # PyAV takes a third of a second to import, which no process without it should pay for.
    from cosyvoice_stream.server.codecs import CodecEncoder

    return CodecEncoder(encoding, engine_rate, sample_rate)


async def open_encoder(encoding: str, engine_rate: int, sample_rate: int, frame_ms: int) -> Encoder:
    """Make an encoder without holding the event loop up; see `make_encoder`."""
    check_output(encoding, sample_rate, frame_ms)
    if encoding in PLAIN:
        return make_encoder(encoding, engine_rate, sample_rate, frame_ms)
    opening = asyncio.ensure_future(
        asyncio.to_thread(make_encoder, encoding, engine_rate, sample_rate, frame_ms)
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])  # milliseconds; what it opened has to be closed
        if opening.exception() is None:
            opening.result().close()
        raise


async def warm_up_codecs() -> None:
    """Import what compresses, so that the first such utterance does not wait for it."""
    await asyncio.to_thread(import_module, "cosyvoice_stream.server.codecs")
