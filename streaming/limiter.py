"""No peak above the ceiling, not even between the samples."""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.streaming.loudness import BLOCK_MS
from cosyvoice_stream.types import Samples

CEILING_DBFS: Final = -1.0
_PHASES: Final = 4
"""Points per sample at which the signal is looked at (ITU-R BS.1770-4, annex 2)."""
_REACH: Final = 8
"""Samples on either side that a point between two of them is made from."""
_RELEASE: Final = 10 ** (0.4 / 20)
"""The gain may rise by 0.4 dB per block."""


def _interpolators() -> Samples:
    """(3, 16) windowed-sinc filters for the points at a quarter, a half and three quarters."""
    taps = np.arange(-_REACH + 1, _REACH + 1)
    shifts = np.arange(1, _PHASES)[:, None] / _PHASES
    away = taps - shifts
    window = 0.5 + 0.5 * np.cos(np.pi * away / (_REACH + 1))
    filters = np.sinc(away) * window
    scaled: Samples = (filters / filters.sum(axis=1, keepdims=True)).astype(np.float32)
    return scaled


_FILTERS: Final = _interpolators()


def true_peak(samples: Samples) -> float:
    """Largest absolute value of a signal, between its samples as well."""
    if not len(samples):
        return 0.0
    peak = float(np.abs(samples).max())
    if len(samples) < 2 * _REACH:
        return peak
    windows = np.lib.stride_tricks.sliding_window_view(samples, 2 * _REACH)
    return max(peak, float(np.abs(windows @ _FILTERS.T).max()))


class Limiter:
    """Turns peaks down smoothly, 10 ms ahead of them. Any cutting of the samples gives the same.

    Args:
        sample_rate: In hertz.
        ceiling_dbfs: Highest true peak.
    """

    def __init__(self, sample_rate: int, ceiling_dbfs: float = CEILING_DBFS) -> None:
        self._size = sample_rate * BLOCK_MS // 1000
        self._ceiling = 10 ** (ceiling_dbfs / 20)
        self._unread: Samples = np.zeros(0, np.float32)
        self._waiting: Samples | None = None
        """The block that leaves when the gain of the next one is known."""
        self._past: Samples = np.zeros(2 * _REACH, np.float32)
        self._allowed = 1.0
        self._gain = 1.0

    def push(self, samples: Samples) -> Samples:
        """Append samples, shape (N,); return what is ready."""
        self._unread = np.concatenate([self._unread, samples])
        whole = len(self._unread) // self._size * self._size
        ready, self._unread = self._unread[:whole], self._unread[whole:]
        blocks = [self._next(block) for block in ready.reshape(-1, self._size)]
        return np.concatenate([*blocks, np.zeros(0, np.float32)])

    def flush(self) -> Samples:
        """The rest, up to one block more than `push` keeps."""
        rest, self._unread = self._unread, self._unread[:0]
        pieces = [self._next(rest)] if len(rest) else []
        pieces.append(self._next(np.zeros(0, np.float32)))
        self._waiting = None
        return np.concatenate(pieces)

    def _next(self, block: Samples) -> Samples:
        """Take a block, give out the one before."""
        heard = np.concatenate([self._past, block])
        peak = true_peak(heard) if len(block) else 0.0
        allowed = min(1.0, self._ceiling / peak) if peak > 0 else 1.0
        self._past = heard[-2 * _REACH :]
        before, self._waiting = self._waiting, block
        if before is None:
            self._allowed = allowed
            self._gain = min(self._gain, allowed)
            return np.zeros(0, np.float32)
        end = min(self._allowed, allowed, self._gain * _RELEASE)
        if self._gain == end == 1.0:
            shaped = before
        else:
            shaped = before * np.linspace(self._gain, end, len(before) + 1, dtype=np.float32)[1:]
        self._allowed, self._gain = allowed, end
        return shaped
