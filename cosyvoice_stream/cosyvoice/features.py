"""Acoustic features of a reference recording: log-mel, Whisper log-mel, Kaldi filter banks.

Each has one reader: `mel_24k` conditions the flow, `whisper_mel` feeds the speech tokenizer,
`fbank` the speaker encoder. All take mono float32 samples of shape (N,) in [-1, 1].
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

MEL_BANDS = 80
WHISPER_BANDS = 128
SLANEY_LINEAR_HZ = 200 / 3
SLANEY_BREAK_HZ = 1000.0
SLANEY_LOG_STEP = math.log(6.4) / 27


def slaney_mel(hz: Tensor) -> Tensor:
    """Hertz → mel: linear up to 1 kHz, logarithmic above (Slaney, Auditory Toolbox, 1998)."""
    log = SLANEY_BREAK_HZ / SLANEY_LINEAR_HZ + (hz / SLANEY_BREAK_HZ).clamp(min=1e-10).log() / (
        SLANEY_LOG_STEP
    )
    return torch.where(hz < SLANEY_BREAK_HZ, hz / SLANEY_LINEAR_HZ, log)


def slaney_hz(mel: Tensor) -> Tensor:
    """Inverse of `slaney_mel`."""
    knee = SLANEY_BREAK_HZ / SLANEY_LINEAR_HZ
    log = SLANEY_BREAK_HZ * ((mel - knee) * SLANEY_LOG_STEP).exp()
    return torch.where(mel < knee, mel * SLANEY_LINEAR_HZ, log)


@cache
def slaney_filters(rate: int, n_fft: int, bands: int, high_hz: float) -> Tensor:
    """(bands, n_fft / 2 + 1) float32 triangles of equal area, 0 Hz to `high_hz`."""
    low, high = slaney_mel(torch.tensor([0.0, high_hz], dtype=torch.float64))
    edges = slaney_hz(torch.linspace(float(low), float(high), bands + 2, dtype=torch.float64))
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    slopes = edges[:, None] - bins[None]
    widths = edges.diff()
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).float()


def mel_24k(samples: Tensor, high_hz: float) -> Tensor:
    """Log-mel for the flow.

    Args:
        samples: (N,) at 24 kHz.
        high_hz: Upper edge: 8000 for CosyVoice 2, 12000 for 3.

    Returns:
        (T, 80) natural log, 50 frames per second.
    """
    n_fft, hop = 1920, 480
    pad = (n_fft - hop) // 2
    padded = F.pad(samples[None, None], (pad, pad), mode="reflect")[0, 0]
    spectrum = torch.stft(
        padded, n_fft, hop, n_fft, torch.hann_window(n_fft), center=False, return_complex=True
    )
    magnitude = (spectrum.abs().square() + 1e-9).sqrt()
    mel = slaney_filters(24_000, n_fft, MEL_BANDS, high_hz) @ magnitude
    return mel.clamp(min=1e-5).log().T


def whisper_mel(samples: Tensor) -> Tensor:
    """Log-mel as Whisper computes it (Radford et al., arXiv 2212.04356, §2.2), 128 bands.

    Args:
        samples: (N,) at 16 kHz.

    Returns:
        (1, 128, T), 100 frames per second, clipped to 8 decades below its peak and scaled.
    """
    n_fft, hop = 400, 160
    spectrum = torch.stft(samples, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True)
    power = spectrum[:, :-1].abs().square()
    mel = slaney_filters(16_000, n_fft, WHISPER_BANDS, 8000.0) @ power
    log = mel.clamp(min=1e-10).log10()
    log = torch.maximum(log, log.max() - 8.0)
    return ((log + 4.0) / 4.0)[None]


KALDI_FRAME = 400
KALDI_HOP = 160
KALDI_FFT = 512


@cache
def kaldi_filters() -> Tensor:
    """(80, 256) float32 triangles on Kaldi's mel scale, 20 Hz to 8 kHz, without the Nyquist bin."""
    low, high = (1127.0 * math.log(1.0 + hz / 700.0) for hz in (20.0, 8000.0))
    step = (high - low) / (MEL_BANDS + 1)
    bank = torch.arange(MEL_BANDS)[:, None]
    left, centre, right = (low + (bank + k) * step for k in (0.0, 1.0, 2.0))
    hertz = 16_000 / KALDI_FFT * torch.arange(KALDI_FFT // 2)
    bins = 1127.0 * (1.0 + hertz / 700.0).log()[None]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    return torch.minimum(rising, falling).clamp(min=0)


def fbank(samples: Tensor) -> Tensor:
    """Kaldi log filter banks without dither (Povey window, pre-emphasis 0.97).

    Args:
        samples: (N,) at 16 kHz, at least 25 ms.

    Returns:
        (T, 80), 100 frames per second.
    """
    frames = samples.unfold(0, KALDI_FRAME, KALDI_HOP)
    frames = frames - frames.mean(dim=1, keepdim=True)
    before = torch.cat((frames[:, :1], frames[:, :-1]), dim=1)
    frames = frames - 0.97 * before
    window = torch.hann_window(KALDI_FRAME, periodic=False).pow(0.85)
    power = torch.fft.rfft(F.pad(frames * window, (0, KALDI_FFT - KALDI_FRAME))).abs().square()
    energies: Tensor = power[:, :-1] @ kaldi_filters().T
    return energies.clamp(min=torch.finfo(torch.float32).eps).log()


def speaker_fbank(samples: Tensor) -> Tensor:
    """`fbank` minus its mean over time, (1, T, 80): what the speaker encoder takes."""
    features = fbank(samples)
    return (features - features.mean(dim=0, keepdim=True))[None]
