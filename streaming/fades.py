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


class SmoothGain:
    """A gain that changes without a click: linear over `RAMP_MS`.

    Args:
        gain: To begin with.
    """

    RAMP_MS: Final = 20

    def __init__(self, gain: float = 1.0) -> None:
        self.target = gain
        self._now = gain

    @property
    def is_unity(self) -> bool:
        """Whether samples pass as they are."""
        return self._now == self.target == 1.0

    def apply(self, samples: Samples, sample_rate: int) -> Samples:
        """Scale the next samples of a stream."""
        step = 1000 / (self.RAMP_MS * sample_rate)
        path = self._now + np.sign(self.target - self._now) * step * np.arange(1, len(samples) + 1)
        low, high = sorted((self._now, self.target))
        gains = np.clip(path, low, high)
        if len(samples):
            self._now = float(gains[-1])
        scaled: Samples = (samples * gains).astype(np.float32)
        return scaled

    def reset(self, gain: float = 1.0) -> None:
        """Jump, for a stream that begins."""
        self.target = self._now = gain
