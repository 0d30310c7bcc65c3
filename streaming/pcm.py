"""Samples between float32 and the integers of wires and files."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.types import Samples

FULL_SCALE = 32768
"""Integer that stands for 1.0; the largest one that fits is one less."""
KNEE: Final = 0.8
"""Samples above this are bent towards full scale by `soft_limit` instead of clipped."""


def to_int16(samples: Samples) -> NDArray[np.int16]:
    """Round float32 in [-1, 1] to integers; what lies outside is clipped."""
    scaled = np.rint(samples * np.float32(FULL_SCALE))
    clipped: Samples = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1)
    return clipped.astype(np.int16)


def from_int16(values: NDArray[np.int16]) -> Samples:
    """Integers to float32 in [-1, 1)."""
    return values.astype(np.float32) / np.float32(FULL_SCALE)


def to_s16le(samples: Samples) -> bytes:
    """Float32 to 16-bit little-endian bytes."""
    return to_int16(samples).astype("<i2", copy=False).tobytes()


def from_s16le(data: bytes) -> Samples:
    """16-bit little-endian bytes to float32; a half sample at the end is an error.

    Raises:
        ValueError: An odd number of bytes.
    """
    return from_int16(np.frombuffer(data, "<i2"))


def to_f32le(samples: Samples) -> bytes:
    """Float32 to 32-bit little-endian bytes, clipped to [-1, 1]."""
    return np.clip(samples, -1.0, 1.0).astype("<f4").tobytes()


def from_f32le(data: bytes) -> Samples:
    """32-bit little-endian bytes to float32.

    Raises:
        ValueError: The number of bytes is no multiple of four, or a sample is not finite.
    """
    samples = np.frombuffer(data, "<f4").astype(np.float32)
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite numbers")
    return samples


def level_dbfs(samples: Samples) -> float:
    """Root mean square in dB below full scale; -inf for silence and for nothing."""
    if not len(samples):
        return -math.inf
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return 10 * math.log10(power) if power > 0 else -math.inf


def silence(count: int) -> Samples:
    """`count` zero samples."""
    return np.zeros(count, np.float32)


def soft_limit(samples: Samples) -> Samples:
    """Leave what is below the knee, bend what is above towards 1: no wrap, no memory, no clicks."""
    size = np.abs(samples)
    if size.max(initial=0.0) <= KNEE:
        return samples
    bent = KNEE + (1 - KNEE) * np.tanh((size - KNEE) / (1 - KNEE))
    return np.where(size > KNEE, np.sign(samples) * bent, samples).astype(np.float32)
