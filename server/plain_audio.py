"""Uncompressed audio of the wire back to samples, and the end of audio that is cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cosyvoice_stream.server.encoders import PACK
from cosyvoice_stream.streaming import g711, pcm
from cosyvoice_stream.streaming.fades import fade_from, fade_out, fade_samples
from cosyvoice_stream.types import Samples

UNPACK: Final[dict[str, Callable[[bytes], Samples]]] = {
    "pcm_s16le": pcm.from_s16le,
    "wav": pcm.from_s16le,
    "pcm_f32le": pcm.from_f32le,
    "mulaw": lambda data: pcm.from_int16(g711.decode_mulaw(np.frombuffer(data, np.uint8))),
    "alaw": lambda data: pcm.from_int16(g711.decode_alaw(np.frombuffer(data, np.uint8))),
}
"""Encoding → decoder of whole samples, without the header of ``wav``."""


def faded_end(encoding: str, sample_rate: int, before: bytes, after: bytes) -> tuple[bytes, int]:
    """End a stream that is cut off.

    Args:
        encoding: One of `UNPACK`.
        sample_rate: In hertz.
        before: What was sent last, at least one sample.
        after: What would have followed; may be empty.

    Returns:
        At most 5 ms of audio that ends in silence, and its length in samples.
    """
    pack, width, _ = PACK[encoding]
    wanted = fade_samples(sample_rate)
    samples = UNPACK[encoding](after[: wanted * width])
    if not len(samples):
        samples = fade_from(float(UNPACK[encoding](before[-width:])[0]), wanted)
    else:
        samples = fade_out(samples)
    return pack(samples), len(samples)
