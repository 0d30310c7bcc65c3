"""How an utterance sounds as a whole: its ends, its loudness, its peaks. One stage, no clock.

::

    engine chunks ─► trimmer (lead-in, head, tail) ─► loudness ─► limiter ─► chunks, marks moved
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cosyvoice_stream.streaming.limiter import Limiter
from cosyvoice_stream.streaming.loudness import Loudness
from cosyvoice_stream.streaming.trimmer import Trimmer
from cosyvoice_stream.types import BookmarkMark, PcmChunk, Samples, VisemeMark, WordMark

Mark = TypeVar("Mark", WordMark, VisemeMark)


@dataclass(frozen=True, slots=True)
class SoundOptions:
    """What is done to the sound; nothing by default."""

    loudness_dbfs: float | None = None
    """Wanted root mean square of speech; peaks are then limited to -1 dBFS."""
    lead_in_ms: int = 0
    """Silence in front."""
    head_ms: int | None = None
    """Silence of the engine that may stay in front of the first sound."""
    tail_ms: int | None = None
    """Silence of the engine that may stay behind the last sound."""

    @property
    def do_nothing(self) -> bool:
        """Whether chunks pass as they are."""
        return self == SoundOptions()


class Sound:
    """Chunks of one utterance in, chunks out. Any cutting gives the same samples.

    Args:
        options: What to do.
        sample_rate: Of the chunks, in hertz.
    """

    def __init__(self, options: SoundOptions, sample_rate: int) -> None:
        self._options = options
        self._trimmer = Trimmer(
            sample_rate,
            lead_in_ms=options.lead_in_ms,
            head_ms=options.head_ms,
            tail_ms=options.tail_ms,
        )
        self._loudness: Loudness | None = None
        self._limiter: Limiter | None = None
        if options.loudness_dbfs is not None:
            self._loudness = Loudness(options.loudness_dbfs, sample_rate)
            self._limiter = Limiter(sample_rate)
        self._words: tuple[WordMark, ...] = ()
        self._visemes: tuple[VisemeMark, ...] = ()
        self._bookmarks: tuple[BookmarkMark, ...] = ()
        self._position = 0

    def push(self, chunk: PcmChunk) -> PcmChunk | None:
        """Take a chunk; return what is ready, or None. A final chunk gives a final one."""
        if self._options.do_nothing:
            return chunk
        self._words += chunk.words
        self._visemes += chunk.visemes
        self._bookmarks += chunk.bookmarks
        samples = self._shape(chunk)
        if not len(samples) and not chunk.final:
            return None
        shift = self._trimmer.shift or 0
        made = replace(
            chunk,
            samples=samples,
            start_sample=self._position,
            words=tuple(_moved(mark, shift) for mark in self._words),
            visemes=tuple(_moved(mark, shift) for mark in self._visemes),
            bookmarks=tuple(
                replace(mark, sample=max(0, mark.sample + shift)) for mark in self._bookmarks
            ),
        )
        self._words, self._visemes, self._bookmarks = (), (), ()
        self._position += len(samples)
        return made

    def _shape(self, chunk: PcmChunk) -> Samples:
        samples = self._trimmer.push(chunk.samples)
        if chunk.final:
            samples = np.concatenate([samples, self._trimmer.flush()])
        for stage in (self._loudness, self._limiter):
            if stage is not None:
                samples = stage.push(samples)
                if chunk.final:
                    samples = np.concatenate([samples, stage.flush()])
        return samples


def _moved(mark: Mark, shift: int) -> Mark:
    return replace(
        mark,
        start_sample=max(0, mark.start_sample + shift),
        end_sample=max(0, mark.end_sample + shift),
    )
