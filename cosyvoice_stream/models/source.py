"""Harmonic source of the vocoder: pitch → a sum of nine harmonics and a little noise.

Harmonic-plus-noise source: Wang et al., "Neural source-filter-based waveform model" (arXiv
1810.11946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

SAMPLE_RATE = 24_000
FRAME_SAMPLES = 480
HARMONICS = 9
VOICED_ABOVE_HZ = 10.0
AMPLITUDE = 0.1
VOICED_NOISE = 0.003


class HarmonicSource(nn.Module):
    """Nine harmonics, mixed to one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.l_linear = nn.Linear(HARMONICS, 1)

    def phase_steps(self, f0: Tensor) -> Tensor:
        """(B, T) hertz → (B, T, 9) float64 phase advance of each frame, in cycles a sample, mod 1.

        The sum over frames of 480 times this is the phase at the end of each frame.
        """
        harmonics = torch.arange(1, HARMONICS + 1, device=f0.device, dtype=torch.float32)
        return torch.remainder(f0[:, :, None] * harmonics / SAMPLE_RATE, 1.0).double()

    def forward(self, cycles: Tensor, voiced: Tensor, noise: Tensor | None) -> Tensor:
        """Mix the harmonics.

        Args:
            cycles: (B, N, 9) float64 phase of every sample and harmonic, in cycles.
            voiced: (B, N) bool.
            noise: (B, N, 9) float32, or None for none.

        Returns:
            (B, 1, N) float32 in (-1, 1).
        """
        waves = AMPLITUDE * torch.sin(2 * math.pi * torch.remainder(cycles, 1.0)).float()
        waves = waves * voiced[:, :, None]
        if noise is not None:
            level = torch.where(voiced, VOICED_NOISE, AMPLITUDE / 3)
            waves = waves + level[:, :, None] * noise
        weight = self.l_linear.weight
        # (B, N, 1) -> (B, 1, N)
        return torch.tanh(self.l_linear(waves.to(weight.dtype))).mT.float()


class NoiseStream:
    """Noise of one utterance, indexed by sample, the same however it is cut.

    Args:
        seed: Any 63-bit number.
        uniform: Numbers from [0, 1) as CosyVoice 3 was trained with, else standard normal.
    """

    def __init__(self, seed: int, *, uniform: bool) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._uniform = uniform
        self._held = torch.empty(0, HARMONICS)
        self._start = 0

    def take(self, start: int, count: int) -> Tensor:
        """Noise of `count` samples, (count, 9); `start` must never go back."""
        if start < self._start:
            raise ValueError("noise was asked for twice further back than it is kept")
        missing = start + count - self._start - len(self._held)
        if missing > 0:
            shape = (missing, HARMONICS)
            draw = torch.rand if self._uniform else torch.randn
            self._held = torch.cat((self._held, draw(shape, generator=self._generator)))
        self._held = self._held[start - self._start :]
        self._start = start
        return self._held[:count]


def take_noise(
    streams: Sequence[NoiseStream | None], starts: Sequence[int], count: int, device: torch.device
) -> Tensor | None:
    """Noise of a batch of utterances, (B, count, 9), or None where they render without.

    Args:
        streams: One per utterance; all of them None or none of them.
        starts: First sample of each.
        count: Samples.
        device: Where the result is wanted; numbers are drawn on the CPU.
    """
    drawn = [
        stream.take(start, count)
        for stream, start in zip(streams, starts, strict=True)
        if stream is not None
    ]
    return torch.stack(drawn).to(device) if drawn else None
