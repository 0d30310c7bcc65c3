"""Change of sample rate in streams: band-limited, aligned, the same for any chunking."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import soxr
from numpy.lib.stride_tricks import sliding_window_view

from cosyvoice_stream.types import Samples

STOPBAND_DB: Final = 80.0
"""How far images and aliases are below the signal."""
ZERO_CROSSINGS: Final = 40
"""Reach of the filter to either side, in samples of the lower rate: at 8 kHz 5 ms. With the
attenuation it decides the width of the transition band; this many make it an eighth of the band."""
MAX_PHASES: Final = 1024
"""Largest table of filters; all pairs of usual rates need 640 or fewer."""


@lru_cache(maxsize=32)
def _filters(up: int, down: int) -> Samples:
    """Design the low-pass filter, one row for every position between two input samples.

    A Kaiser-windowed sinc whose stopband begins at half the lower rate, so that nothing folds back.
    Width and shape follow Kaiser's formulas (Oppenheim and Schafer, *Discrete-Time Signal
    Processing*, section 7.6): with 80 dB the pass band is flat up to 87 % of that.

    Args:
        up: Output rate over the common divisor of both rates.
        down: Input rate over the common divisor of both rates.

    Returns:
        Shape (`up`, taps), float32; every row sums to 1. Tap i of row p weighs the input sample
        at i - taps / 2 + 1 - p / `up` samples from the output.
    """
    decimation = max(1.0, down / up)
    reach = ZERO_CROSSINGS * decimation
    width = (STOPBAND_DB - 8) / (2.285 * 2 * ZERO_CROSSINGS) / math.pi
    cutoff = (1 - width / 2) / decimation
    half = math.ceil(reach)
    time = np.arange(1 - half, half + 1) - np.arange(up)[:, None] / up
    beta = 0.1102 * (STOPBAND_DB - 8.7)
    window = np.i0(beta * np.sqrt(np.clip(1 - (time / reach) ** 2, 0, None)))
    taps = np.sinc(cutoff * time) * window * (np.abs(time) <= reach)
    filters: Samples = (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
    filters.setflags(write=False)
    return filters


class _Converter(Protocol):
    def push(self, samples: Samples) -> Samples: ...

    def flush(self) -> Samples: ...


class _Polyphase:
    """Holds back only what the filter reaches ahead.

    Each output sample is one dot product of fixed length, so its bits do not depend on how many
    are computed at once; a matrix product or an FFT over what happens to be there would not do.
    """

    def __init__(self, input_hz: int, output_hz: int) -> None:
        divisor = math.gcd(input_hz, output_hz)
        self._up, self._down = output_hz // divisor, input_hz // divisor
        self._filters = _filters(self._up, self._down)
        self._half = self._filters.shape[1] // 2
        self._held: Samples = np.zeros(self._half - 1, np.float32)
        self._start = 0  # of `_held`, counted from the zeros before the first sample
        self._next = 0  # output sample

    def push(self, samples: Samples) -> Samples:
        up, down, taps = self._up, self._down, 2 * self._half
        held = np.concatenate([self._held, samples])
        last_start = self._start + len(held) - taps
        count = max(0, (last_start * up + up - 1) // down + 1 - self._next)
        out = np.empty(count, np.float32)
        if count:
            windows = sliding_window_view(held, taps)[:, None, :]  # (starts, 1, taps)
            for first in range(min(up, count)):  # then every `up`-th output has the same filter
                start, phase = divmod((self._next + first) * down, up)
                same = windows[start - self._start :: down][: -(-(count - first) // up)]
                out[first::up] = np.matmul(same, self._filters[phase][:, None])[:, 0, 0]
            self._next += count
        done = self._next * down // up - self._start
        self._held = held[done:].copy()
        self._start += done
        return out

    def flush(self) -> Samples:
        return self.push(np.zeros(self._half, np.float32))


class _Blocks:
    """soxr, for ratios with too many phases. It works in blocks of about 40 ms."""

    def __init__(self, input_hz: int, output_hz: int) -> None:
        self._stream = soxr.ResampleStream(input_hz, output_hz, 1, dtype="float32", quality="HQ")

    def push(self, samples: Samples) -> Samples:
        out: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32))
        return out

    def flush(self) -> Samples:
        out: Samples = self._stream.resample_chunk(np.zeros(0, np.float32), last=True)
        return out


class Resampler:
    """Resamples one stream.

    Output sample k lies at time k / `output_hz` of the input: no delay to account for. What the
    filter reaches ahead is held back until it has come or the stream ends: 40 samples of the
    lower rate, 5 ms at 8 kHz and 1.7 ms at 24 kHz. Equal rates pass through untouched.

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
        if self._converter is None:
            return [samples] if len(samples) else []
        self._pushed += len(samples)
        return self._take(self._converter.push(samples))

    def flush(self) -> list[Samples]:
        """End the stream: together round(N · output_hz / input_hz) samples have come out."""
        if self._converter is None:
            return []
        due = round(self._pushed * self.output_hz / self.input_hz) - self._taken
        rest = self._converter.flush()[:due] if due > 0 else np.zeros(0, np.float32)
        self.reset()
        rest = np.pad(rest, (0, max(0, due - len(rest))))
        return [rest] if len(rest) else []

    def reset(self) -> None:
        """Forget the stream and start another."""
        self._pushed = 0
        self._taken = 0
        self._converter: _Converter | None = None
        if self.input_hz != self.output_hz:
            phases = self.output_hz // math.gcd(self.input_hz, self.output_hz)
            kind = _Polyphase if phases <= MAX_PHASES else _Blocks
            self._converter = kind(self.input_hz, self.output_hz)

    def _take(self, samples: Samples) -> list[Samples]:
        self._taken += len(samples)
        return [samples] if len(samples) else []
