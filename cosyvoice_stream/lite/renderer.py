"""Spectra → samples: an inverse short-time Fourier transform that can stop after any frame.

Frames of 1200 samples (periodic Hann) overlap by three quarters. With K = 4 blocks a frame::

    frame i      |b0 b1 b2 b3|
    frame i+1       |b0 b1 b2 b3|
    block i+3             ·         complete once frames i … i+3 have been added

so a chunk that ends with frame j can give out everything before block j, and carries three blocks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.fft

from cosyvoice_stream.lite.acoustic import BINS, FRAME_SAMPLES, SAMPLE_RATE, FloatArray, Spectra
from cosyvoice_stream.types import Samples

FFT: Final = 1200
BLOCKS: Final = FFT // FRAME_SAMPLES
HALF: Final = FFT // 2
WINDOW: Final = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)
SOURCE_WINDOW: Final = WINDOW / np.float32(FFT / 4)
"""Scaled so that exp(harmonic) is the magnitude of a harmonic."""
VOICED_HZ: Final = 40.0
HIGHEST_HARMONIC_HZ: Final = 11_000.0
MAX_LOG: Final = 7.0
_SQUARES: Final = (WINDOW * WINDOW).reshape(BLOCKS, FRAME_SAMPLES)


def pulses(f0: FloatArray) -> Samples:
    """Band-limited pulse train: all harmonics below 11 kHz at unit amplitude, 0 where unvoiced.

    The sum of cos(h t) for h = 1 … H is sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2 (Dirichlet kernel).
    Pitch is linear between frame centres; phase is summed up in float64.

    Args:
        f0: (T,) hertz.

    Returns:
        (300 T,) samples.
    """
    frames = len(f0)
    centres = (np.arange(frames) + 0.5) * FRAME_SAMPLES
    times = np.arange(frames * FRAME_SAMPLES) + 0.5
    pitch = np.interp(times, centres, f0.astype(np.float64))
    voiced = pitch > VOICED_HZ
    pitch = np.maximum(pitch, VOICED_HZ)
    phase = np.cumsum(pitch) / SAMPLE_RATE
    t = 2 * np.pi * (phase - np.floor(phase))
    order = np.floor(HIGHEST_HARMONIC_HZ / pitch) + 0.5
    below = 2 * np.sin(t / 2)
    at_peak = np.abs(below) <= 2e-3
    train = np.where(at_peak, order, np.sin(order * t) / np.where(at_peak, 1, below)) - 0.5
    return np.where(voiced, train, 0).astype(np.float32)


def _log(values: FloatArray) -> FloatArray:
    return np.exp(np.minimum(values, np.float32(MAX_LOG)))


def _turned(magnitude: FloatArray, angle: FloatArray) -> np.ndarray:
    out = np.empty(magnitude.shape, np.complex64)
    np.multiply(magnitude, np.cos(angle), out=out.real)
    np.multiply(magnitude, np.sin(angle), out=out.imag)
    return out


class Renderer:
    """Renders one run of spectra in pieces; any cutting gives the same samples.

    Args:
        spectra: From the acoustic model, adapted where wanted.
        rng: Source of the random part; drawn frame by frame. None leaves the part out.
    """

    def __init__(self, spectra: Spectra, rng: np.random.Generator | None) -> None:
        self._spectra = spectra
        self._rng = rng
        self._excitation: Samples | None = None
        self._carry = np.zeros((BLOCKS - 1, FRAME_SAMPLES), np.float32)
        self._done = 0

    @property
    def finished(self) -> bool:
        """Whether every frame has been rendered."""
        return self._done >= self._spectra.frames

    def render(self, frames: int) -> Samples:
        """Render the next frames.

        Args:
            frames: How many, at most; the last call may find fewer.

        Returns:
            (N,) samples; over all calls 300 a frame. The first call gives 600 fewer than its
            frames, the last one the rest.
        """
        start, end = self._done, min(self._done + frames, self._spectra.frames)
        last = end == self._spectra.frames
        blocks = np.zeros((end - start + BLOCKS - 1, FRAME_SAMPLES), np.float32)
        blocks[: BLOCKS - 1] = self._carry
        pieces = scipy.fft.irfft(self._spectrum(start, end), FFT, axis=1)
        pieces = (pieces * WINDOW).reshape(-1, BLOCKS, FRAME_SAMPLES)
        for k in range(BLOCKS):
            blocks[k : k + len(pieces)] += pieces[:, k]
        self._done = end
        self._carry = blocks[end - start :]
        ready = blocks if last else blocks[: end - start]
        wave = (ready / self._coverage(start, len(ready))).reshape(-1)
        # Block b covers samples 300 b - 600 … 300 b - 301 of the output.
        first = max(0, HALF - start * FRAME_SAMPLES)
        stop = self._spectra.frames * FRAME_SAMPLES + HALF - start * FRAME_SAMPLES
        return wave[first:stop]

    def _coverage(self, start: int, count: int) -> FloatArray:
        """Sum of the squared windows that reach each block: (count, 300)."""
        block = np.arange(start, start + count)
        total = np.zeros((count, FRAME_SAMPLES), np.float32)
        for k in range(BLOCKS):
            frame = block - k
            inside = (frame >= 0) & (frame < self._spectra.frames)
            total += inside[:, None] * _SQUARES[k]
        return np.maximum(total, np.float32(1e-11))

    def _spectrum(self, start: int, end: int) -> np.ndarray:
        """(frames, 601) complex spectrum of frames start … end - 1."""
        s = self._spectra
        if self._excitation is None:
            self._excitation = np.pad(pulses(s.f0), HALF, mode="reflect")
        stretch = self._excitation[start * FRAME_SAMPLES : (end - 1) * FRAME_SAMPLES + FFT]
        frames = np.lib.stride_tricks.sliding_window_view(stretch, FFT)[::FRAME_SAMPLES]
        spectrum = scipy.fft.rfft(frames * SOURCE_WINDOW, axis=1)
        part = slice(start, end)
        spectrum *= _turned(
            _log(s.harmonic[:, part]), np.float32(np.pi) * np.tanh(s.theta[:, part])
        ).T
        spectrum += _turned(_log(s.free[:, part]), s.phi[:, part]).T
        if self._rng is not None:
            z = self._rng.standard_normal((end - start, BINS, 2), np.float32).view(np.complex64)
            spectrum += z[:, :, 0] * _log(s.noise[:, part]).T
        out: np.ndarray = spectrum
        return out
