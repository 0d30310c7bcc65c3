"""Refuses what an engine makes by a fault: samples that are no numbers, silence instead of words.

A pause is silent too, so silence alone is no fault. It is one where a word should be heard, where
it lasts longer than any pause, and where nothing else comes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.errors import SynthesisFailed
from cosyvoice_stream.types import PcmChunk, WordMark

SILENT_PEAK: Final = 1e-4
"""-80 dBFS; a speaking voice stays above it even in the closure of a stop."""
LONGEST_SILENCE_S: Final = 3.0
"""On top of the pause that was asked for."""
_WORD_S: Final = 0.06
"""Of a word in a silent chunk: no closure is as long."""


class SpeechCheck:
    """Chunks of one utterance in, the same chunks out, none by a fault.

    Silence in front of the first sound waits for it, so that none goes out when nothing follows.

    Args:
        sample_rate: Of the chunks, in hertz.
        pause_s: Longest pause that was asked for.
        may_be_silent: Silence is what was asked for (a volume of zero); only numbers are checked.
    """

    def __init__(
        self, sample_rate: int, *, pause_s: float = 0.0, may_be_silent: bool = False
    ) -> None:
        self._longest = round((LONGEST_SILENCE_S + pause_s) * sample_rate)
        self._word = round(_WORD_S * sample_rate)
        self._may_be_silent = may_be_silent
        self._heard = False
        self._silent = 0
        """Samples of silence up to here."""
        self._held: list[PcmChunk] = []
        self._words: list[WordMark] = []

    def push(self, chunk: PcmChunk) -> list[PcmChunk]:
        """Take a chunk; return those that may go out, in order.

        Raises:
            SynthesisFailed: It was made by a fault.
        """
        if not np.isfinite(chunk.samples).all():
            raise SynthesisFailed("the engine made samples that are not finite")
        if self._may_be_silent:
            return [chunk]
        if len(chunk.samples):
            self._look(chunk)
        self._held.append(chunk)
        if chunk.final and not self._heard and self._silent:
            raise SynthesisFailed("the engine made nothing but silence")
        if not self._heard and not chunk.final:
            return []
        ready, self._held = self._held, []
        return ready

    def _look(self, chunk: PcmChunk) -> None:
        end = chunk.start_sample + len(chunk.samples)
        self._words += chunk.words
        if np.abs(chunk.samples).max() > SILENT_PEAK:
            self._heard = True
            self._silent = 0
        else:
            self._silent += len(chunk.samples)
            for word in self._words:
                inside = min(word.end_sample, end) - max(word.start_sample, chunk.start_sample)
                if inside >= min(self._word, word.end_sample - word.start_sample) > 0:
                    raise SynthesisFailed("the engine made silence where a word should be heard")
            if self._silent > self._longest:
                raise SynthesisFailed("the engine made silence that does not end")
        self._words = [word for word in self._words if word.end_sample > end]
