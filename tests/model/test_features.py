"""Features of a reference recording equal the original's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cosyvoice_stream.cosyvoice import features
from support import cosyvoice
from support.named_weights import named_input

pytestmark = pytest.mark.model


def tones(rate: int) -> Tensor:
    """Three seconds of two sweeps and a trembling tone."""
    t = torch.arange(3 * rate, dtype=torch.float64) / rate
    wave = 0.3 * torch.sin(2 * math.pi * (120 * t + 40 * t * t))
    wave += 0.2 * torch.sin(2 * math.pi * (900 * t + 700 * t * t))
    wave += 0.05 * torch.sin(2 * math.pi * 3000 * t) * torch.cos(2 * math.pi * 3 * t)
    return wave.float()


def noise(rate: int) -> Tensor:
    """Nearly a second of noise with silence in it."""
    count = rate - 777
    wave = 0.1 * named_input(f"golden.noise.{rate}", (count,))
    wave[count // 3 : count // 2] = 0
    return wave.clamp(-1, 1)


@pytest.mark.parametrize(("prefix", "signal"), [("", tones), ("noise.", noise)])
def test_features(prefix: str, signal: Callable[[int], Tensor]) -> None:
    expected = load_file(cosyvoice.DATA / "features.safetensors")

    def check(name: str, actual: Tensor) -> None:
        torch.testing.assert_close(actual, expected[prefix + name], atol=1e-4, rtol=0)

    check("mel24k.fmax8000", features.mel_24k(signal(24_000), 8_000).T)
    check("mel24k.fmax_null", features.mel_24k(signal(24_000), 12_000).T)
    check("whisper128.16k", features.whisper_mel(signal(16_000))[0])
    banks = expected[prefix + "fbank80.16k"]
    # Bands 65 dB below the loudest of their frame show rounding of the transform, not the signal.
    heard = banks > banks.amax(dim=1, keepdim=True) - 15
    actual = features.fbank(signal(16_000))
    torch.testing.assert_close(actual[heard], banks[heard], atol=1e-4, rtol=0)
    torch.testing.assert_close(
        features.speaker_fbank(signal(16_000))[0].mean(dim=0), torch.zeros(80), atol=1e-4, rtol=0
    )
