"""The silence at both ends of an utterance: cut to a length, or put in front."""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.streaming.pcm import silence
from cosyvoice_stream.types import Samples

LOUD: Final = 10 ** (-50 / 20)
"""Samples above this are sound."""


class Trimmer:
    """Samples in, samples out, and by how much they have moved.

    Silence behind the last sound is held back beyond `tail`: it comes with the sound that follows,
    or not at all. Any cutting of the samples gives the same.

    Args:
        sample_rate: In hertz.
        lead_in_ms: Silence to put in front.
        head_ms: Silence that may stay before the first sound; None leaves all.
        tail_ms: Silence that may stay behind the last sound; None leaves all.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        lead_in_ms: int = 0,
        head_ms: int | None = None,
        tail_ms: int | None = None,
    ) -> None:
        self._lead_in = sample_rate * lead_in_ms // 1000
        self._head = None if head_ms is None else sample_rate * head_ms // 1000
        self._tail = None if tail_ms is None else sample_rate * tail_ms // 1000
        self._held: Samples = silence(0)
        self._cut = 0
        self._given_tail = 0
        """Samples of silence behind the last sound that have been given out."""
        self.shift: int | None = None
        """What has to be added to the position of a sample; None before the first one is out."""

    def push(self, samples: Samples) -> Samples:
        """Append samples, shape (N,); return what is ready."""
        held = np.concatenate([self._held, samples])
        front = silence(0)
        if self.shift is None:
            if not len(held):
                return held
            if self._head is not None:
                loud = np.flatnonzero(np.abs(held) > LOUD)
                drop = max(0, (loud[0] if len(loud) else len(held)) - self._head)
                held, self._cut = held[drop:], self._cut + int(drop)
                if not len(loud):
                    self._held = held
                    return front
            self.shift = self._lead_in - self._cut
            front = silence(self._lead_in)
        if self._tail is None:
            self._held = silence(0)
            return np.concatenate([front, held])
        loud = np.flatnonzero(np.abs(held) > LOUD)
        if len(loud):
            # What was held is silence, and the sound behind it frees it.
            sound_end = int(loud[-1]) + 1
            end = min(len(held), sound_end + self._tail)
            self._given_tail = end - sound_end
        else:
            end = min(len(held), self._tail - self._given_tail)
            self._given_tail += end
        out, self._held = held[:end], held[end:]
        return np.concatenate([front, out])

    def take_tail(self) -> Samples:
        """Take the silence that is held: something follows that is not to be parted from it."""
        held, self._held = self._held, silence(0)
        return held

    def flush(self) -> Samples:
        """Nothing follows; the silence that is held is dropped."""
        self._held = silence(0)
        return self._held
