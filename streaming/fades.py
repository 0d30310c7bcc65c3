"""Short ramps at the end of audio that is cut off, so that no click is heard."""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.types import Samples

FADE_MS: Final = 5


def fade_samples(sample_rate: int) -> int:
    """Length of a fade at a rate in hertz."""
    return max(1, sample_rate * FADE_MS // 1000)


def ramp_down(count: int) -> Samples:
    """Raised cosine from nearly 1 to 0 over `count` samples."""
    steps = (np.arange(count, dtype=np.float64) + 1) / count
    return (0.5 + 0.5 * np.cos(np.pi * steps)).astype(np.float32)


def fade_out(samples: Samples) -> Samples:
    """Let samples end in silence."""
    return samples * ramp_down(len(samples))


def fade_from(value: float, count: int) -> Samples:
    """Go from the last sample that was heard to silence, where what followed it is not known."""
    return np.float32(value) * ramp_down(count)
