"""Chunks of any size → frames of one size."""

from __future__ import annotations

from collections import deque

import numpy as np

from cosyvoice_stream.types import Samples


class Framer:
    """Cuts one stream into frames.

    Args:
        frame_samples: Samples of every frame.
        pad: Fill the last frame up with silence instead of leaving it shorter.

    Raises:
        ValueError: `frame_samples` is not positive.
    """

    def __init__(self, frame_samples: int, *, pad: bool = False) -> None:
        if frame_samples < 1:
            raise ValueError("a frame holds at least one sample")
        self.frame_samples = frame_samples
        self.pad = pad
        self.reset()

    def push(self, samples: Samples) -> list[Samples]:
        """Append samples, shape (N,), and take the frames that they complete."""
        self._held.append(samples)
        self._count += len(samples)
        if self._count < self.frame_samples:
            return []
        joined = np.concatenate(self._held)
        whole = self._count - self._count % self.frame_samples
        self._keep(joined[whole:])
        return list(joined[:whole].reshape(-1, self.frame_samples))

    def flush(self) -> list[Samples]:
        """End the stream and take the last frame, if any samples are left."""
        rest = np.concatenate([*self._held, np.zeros(0, np.float32)])
        self.reset()
        if not len(rest):
            return []
        if self.pad:
            rest = np.pad(rest, (0, self.frame_samples - len(rest)))
        return [rest]

    def reset(self) -> None:
        """Forget what is held back."""
        self._held: deque[Samples] = deque()
        self._count = 0

    def _keep(self, rest: Samples) -> None:
        self.reset()
        if len(rest):
            self._held.append(rest)
            self._count = len(rest)
