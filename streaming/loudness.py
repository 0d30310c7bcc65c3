"""One loudness for a whole utterance, while it is made."""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.streaming.pcm import level_dbfs
from cosyvoice_stream.types import Samples

BLOCK_MS: Final = 10
_SILENT_DBFS: Final = -55.0
_BELOW_DB: Final = 20.0
"""Blocks so far below the level of the speech are its gaps; they teach nothing."""
_MEMORY_BLOCKS: Final = 80
_FRESH_BLOCKS: Final = 10
"""Weight of what was before a pause: the clause behind it soon speaks for itself."""
_PAUSE_BLOCKS: Final = 8
_SLEW_DB: Final = 0.3
"""Change of the gain per block: 30 dB per second."""
_RANGE_DB: Final = (-20.0, 20.0)


class Loudness:
    """Brings speech to one level. Any cutting of the samples gives the same.

    The level is the mean power of the blocks that carry speech, of the last 0.8 s; behind a pause
    mostly of what follows it. Works in blocks of 10 ms: up to one block waits for its rest.

    Args:
        target_dbfs: Wanted root mean square of speech.
        sample_rate: In hertz.
    """

    def __init__(self, target_dbfs: float, sample_rate: int) -> None:
        self._target_db = target_dbfs
        self._size = sample_rate * BLOCK_MS // 1000
        self._unread: Samples = np.zeros(0, np.float32)
        self._power = 0.0
        self._blocks = 0
        self._quiet_blocks = 0
        self._gain_db: float | None = None

    def push(self, samples: Samples) -> Samples:
        """Append samples, shape (N,); return what is ready."""
        self._unread = np.concatenate([self._unread, samples])
        whole = len(self._unread) // self._size * self._size
        ready, self._unread = self._unread[:whole], self._unread[whole:]
        blocks = [self._scale(block) for block in ready.reshape(-1, self._size)]
        return np.concatenate([*blocks, np.zeros(0, np.float32)])

    def flush(self) -> Samples:
        """The rest."""
        rest, self._unread = self._unread, self._unread[:0]
        return self._scale(rest) if len(rest) else rest

    def _scale(self, block: Samples) -> Samples:
        self._listen(block)
        before = self._gain_db
        if not self._blocks:
            return block
        wanted = self._target_db - 10 * np.log10(self._power)
        wanted = float(np.clip(wanted, *_RANGE_DB))
        if before is None:
            before = self._gain_db = wanted
        self._gain_db = float(np.clip(wanted, before - _SLEW_DB, before + _SLEW_DB))
        path = np.linspace(before, self._gain_db, len(block) + 1)[1:]
        scaled: Samples = (block * 10 ** (path / 20)).astype(np.float32)
        return scaled

    def _listen(self, block: Samples) -> None:
        level_db = level_dbfs(block)
        speech_db = 10 * np.log10(self._power) if self._blocks else level_db
        if level_db < max(_SILENT_DBFS, speech_db - _BELOW_DB):
            self._quiet_blocks += 1
            if self._quiet_blocks == _PAUSE_BLOCKS:
                self._blocks = min(self._blocks, _FRESH_BLOCKS)
            return
        self._quiet_blocks = 0
        self._blocks = min(self._blocks + 1, _MEMORY_BLOCKS)
        self._power += (10 ** (level_db / 10) - self._power) / self._blocks
