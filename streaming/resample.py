"""Change of sample rate in streams: band-limited, aligned, the same for any chunking."""

from __future__ import annotations

import numpy as np
import soxr

from cosyvoice_stream.types import Samples

QUALITY = "HQ"
"""soxr's recipe with 20-bit precision: aliases below -100 dB, linear phase."""


class Resampler:
    """Resamples one stream.

    Output sample k lies at time k / `output_hz` of the input: no delay to account for. soxr works
    in blocks and holds back up to 40 ms of audio (80 ms towards 8 kHz) until more comes or the
    stream ends. Equal rates pass through untouched.

    Args:
        input_hz: Rate of what is pushed.
        output_hz: Rate of what comes out.
    """

    def __init__(self, input_hz: int, output_hz: int) -> None:
        self.input_hz = input_hz
        self.output_hz = output_hz
        self.reset()

    def push(self, samples: Samples) -> list[Samples]:
        """Append samples, shape (N,), and take what is ready."""
        if self._stream is None:
            return [samples] if len(samples) else []
        self._pushed += len(samples)
        return self._take(self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32)))

    def flush(self) -> list[Samples]:
        """End the stream: together round(N · output_hz / input_hz) samples have come out."""
        if self._stream is None:
            return []
        rest = self._stream.resample_chunk(np.zeros(0, np.float32), last=True)
        due = round(self._pushed * self.output_hz / self.input_hz) - self._taken
        rest = np.pad(rest[:due], (0, max(0, due - len(rest))))
        pieces = self._take(rest)
        self.reset()
        return pieces

    def reset(self) -> None:
        """Forget the stream and start another."""
        self._pushed = 0
        self._taken = 0
        self._stream = None
        if self.input_hz != self.output_hz:
            self._stream = soxr.ResampleStream(
                self.input_hz, self.output_hz, 1, dtype="float32", quality=QUALITY
            )

    def _take(self, samples: Samples) -> list[Samples]:
        self._taken += len(samples)
        return [samples] if len(samples) else []
