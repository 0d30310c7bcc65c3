"""Stretched mel: any cutting gives the same frames, and the length follows the tempo."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.tempo import MelStretch

pytestmark = pytest.mark.model

MEL = torch.randn(1, 80, 137, generator=torch.Generator().manual_seed(0))


def stretched(speed: float, sizes: list[int]) -> Tensor:
    stretch = MelStretch(speed)
    out, start = [], 0
    for size in sizes:
        out.append(stretch.push(MEL[:, :, start : start + size], final=False))
        start += size
    out.append(stretch.push(MEL[:, :, start:], final=True))
    return torch.cat(out, dim=2)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.25, 1.7, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_any_cutting_gives_the_same_frames(speed: float, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(0, 20) for _ in range(12)]
    whole = stretched(speed, [])
    torch.testing.assert_close(stretched(speed, sizes), whole, atol=0, rtol=0)
    assert whole.shape[2] == pytest.approx(137 / speed, abs=1)


def test_a_ramp_stays_a_ramp() -> None:
    ramp = torch.arange(40.0).expand(1, 80, 40)
    out = MelStretch(1.6).push(ramp, final=True)
    torch.testing.assert_close(out[0, 0], torch.arange(out.shape[2]) * 1.6)
