"""Speaking faster or slower by stretching mel frames in time, piece by piece."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class MelStretch:
    """Interpolates frames linearly; any cutting of the input gives the same output.

    Output frame n stands at input position n · speed. The first frame stays the first.

    Args:
        speed: Input frames per output frame.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._held: Tensor | None = None
        self._start = 0
        self._made = 0

    def push(self, mel: Tensor, *, final: bool) -> Tensor:
        """Take (1, M, T) frames, T ≥ 0; return the (1, M, T') frames that they settle.

        Args:
            mel: The next frames.
            final: No more will follow.
        """
        if self._speed == 1.0:
            return mel
        held = mel if self._held is None else torch.cat((self._held, mel), dim=2)
        end = self._start + held.shape[2]
        # Frame n needs the input at floor(n · speed) and the one after it.
        settled = math.ceil(end / self._speed) if final else math.ceil((end - 1) / self._speed)
        count = max(0, settled - self._made)
        places = torch.arange(self._made, self._made + count, dtype=torch.float64) * self._speed
        left = places.floor()
        index = (left.long() - self._start).to(held.device)
        part = (places - left).to(held.device, held.dtype)
        last = held.shape[2] - 1
        after = (index + 1).clamp(max=last)
        out = held[:, :, index.clamp(max=last)] * (1 - part) + held[:, :, after] * part
        self._made += count
        keep = min(max(0, math.floor(self._made * self._speed) - self._start), held.shape[2])
        self._held = held[:, :, keep:].clone()
        self._start += keep
        return out
