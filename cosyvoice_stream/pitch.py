"""Fundamental frequency of a recording, frame by frame.

The method is YIN (de Cheveigné and Kawahara, JASA 111, 2002): the cumulative mean normalised
difference function, its first dip below a threshold, and a parabola through the dip; the difference
function comes from one FFT for all frames.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.fft
import soxr
from numpy.typing import NDArray

from cosyvoice_stream.types import Samples

ANALYSIS_HZ: Final = 12_000
LOWEST_HZ: Final = 60.0
HIGHEST_HZ: Final = 520.0
HOP: Final = 120
"""10 ms."""
WINDOW: Final = 300
"""Integration window, 25 ms; the longest period is added to it."""
DIP: Final = 0.15
NEAR_LOWEST: Final = 0.1
VOICED_BELOW: Final = 0.3
RANGE_DB: Final = 35.0
"""Frames further than this below the loudest one are not speech."""


def track_pitch(samples: Samples, sample_rate: int) -> NDArray[np.float64]:
    """Pitch of every voiced frame.

    Args:
        samples: (N,) mono, up to a minute.
        sample_rate: In hertz.

    Returns:
        (voiced frames,) hertz, in order of time; empty where nothing is voiced.
    """
    wave = soxr.resample(samples.astype(np.float32), sample_rate, ANALYSIS_HZ)
    longest = int(ANALYSIS_HZ / LOWEST_HZ) + 2
    shortest = int(ANALYSIS_HZ / HIGHEST_HZ)
    width = WINDOW + longest
    if len(wave) < width:
        return np.zeros(0)
    frames = np.lib.stride_tricks.sliding_window_view(wave, width)[::HOP].astype(np.float64)
    power = np.mean(frames**2, axis=1)
    loud = power > power.max() * 10 ** (-RANGE_DB / 10)
    frames = frames[loud & (power > 0)]
    if not len(frames):
        return np.zeros(0)
    normalised = _normalised_difference(frames, longest)
    lags = np.array([_first_dip(row, shortest) for row in normalised])
    rows = np.arange(len(lags))
    voiced = normalised[rows, lags] < VOICED_BELOW
    return ANALYSIS_HZ / _refine(normalised[voiced], lags[voiced])


def _normalised_difference(frames: NDArray[np.float64], longest: int) -> NDArray[np.float64]:
    """Squared difference to the frame at each lag, over its running mean: (F, longest + 1)."""
    size = scipy.fft.next_fast_len(frames.shape[1] + WINDOW)
    head = scipy.fft.rfft(frames[:, :WINDOW], size, axis=1)
    whole = scipy.fft.rfft(frames, size, axis=1)
    correlation = scipy.fft.irfft(np.conj(head) * whole, size, axis=1)[:, : longest + 1]
    energy = np.cumsum(np.pad(frames**2, ((0, 0), (1, 0))), axis=1)
    shifted = energy[:, WINDOW : WINDOW + longest + 1] - energy[:, : longest + 1]
    difference = np.maximum(shifted[:, :1] + shifted - 2 * correlation, 0)
    running = np.cumsum(difference[:, 1:], axis=1)
    lag = np.arange(1, longest + 1)
    normalised: NDArray[np.float64] = np.ones_like(difference)
    normalised[:, 1:] = difference[:, 1:] * lag / np.maximum(running, 1e-12)
    return normalised


def _first_dip(row: NDArray[np.float64], shortest: int) -> int:
    """Lag of the first local minimum that is deep: below `DIP`, or near the lowest of the frame.

    In noise no minimum may reach `DIP`; then the lowest one is often a multiple of the period.
    """
    inner = row[shortest:-1]
    lowest = (inner <= row[shortest - 1 : -2]) & (inner <= row[shortest + 1 :])
    deep = inner < max(DIP, inner.min() + NEAR_LOWEST)
    minima = np.flatnonzero(deep & lowest)
    return shortest + int(minima[0] if len(minima) else np.argmin(inner))


def _refine(rows: NDArray[np.float64], lags: NDArray[np.int64]) -> NDArray[np.float64]:
    """Vertex of the parabola through each minimum and its neighbours."""
    index = np.arange(len(lags))
    left, centre, right = (rows[index, lags + k] for k in (-1, 0, 1))
    bend = left - 2 * centre + right
    offset = np.where(bend > 0, (left - right) / (2 * np.where(bend > 0, bend, 1)), 0)
    refined: NDArray[np.float64] = lags + np.clip(offset, -0.5, 0.5)
    return refined
