"""One utterance inside the pool: clauses in, chunks out, bounded in both directions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from cosyvoice_stream.errors import EngineDied, SynthesisFailed
from cosyvoice_stream.lite.acoustic import SAMPLE_RATE, AcousticModel
from cosyvoice_stream.lite.clause_audio import ClauseAudio, Delivery
from cosyvoice_stream.lite.phonemes import PhonemeRun
from cosyvoice_stream.streaming.clauses import Clause
from cosyvoice_stream.streaming.pcm import silence
from cosyvoice_stream.types import PcmChunk, Samples, VisemeMark, WordMark

CLAUSE_PAUSE_S: Final = 0.10
"""Between two clauses of a sentence, on top of the 80 ms that a clause keeps of its own silence."""
SENTENCE_PAUSE_S: Final = 0.28
PARAGRAPH_PAUSE_S: Final = 0.55


def pause_between(
    clause: Clause, following: Clause, speed: float, sentence_pause_ms: int | None = None
) -> int:
    """Samples of silence between two clauses, at a tempo.

    Args:
        clause: The one before.
        following: The one behind.
        speed: The tempo; a pause that is asked for does not change with it.
        sentence_pause_ms: Asked for behind every sentence.
    """
    pause_s = CLAUSE_PAUSE_S
    paragraph = clause.ends_paragraph or following.begins_paragraph
    if sentence_pause_ms is not None and (clause.ends_sentence or paragraph):
        return round(sentence_pause_ms / 1000 * SAMPLE_RATE)
    if paragraph:
        pause_s = PARAGRAPH_PAUSE_S
    elif clause.ends_sentence:
        pause_s = SENTENCE_PAUSE_S
    return round(pause_s / speed * SAMPLE_RATE)


class UtteranceWork:
    """Implements `Work`. The loop feeds clauses and takes chunks; a pool thread does the steps.

    Args:
        model: Speaks.
        delivery: How.
        seed: Of the utterance's random part.
        normalize: Read numbers, dates and units as words.
        max_buffered_s: Steps stop while so much audio waits to be taken.
        arrived: Called on a pool thread when there is something to take.
    """

    def __init__(
        self,
        model: AcousticModel,
        delivery: Delivery,
        *,
        seed: int,
        normalize: bool,
        max_buffered_s: float,
        arrived: Callable[[], None],
    ) -> None:
        self._model = model
        self._delivery = delivery
        self._rng = np.random.default_rng(seed)
        self._normalize = normalize
        self._max_buffered = round(max_buffered_s * SAMPLE_RATE)
        self._arrived = arrived
        # Appends and pops of a deque are atomic; each one is used by one side at each end.
        self._clauses: deque[Clause] = deque()
        self._chunks: deque[PcmChunk] = deque()
        self._buffered = 0
        self._taken = 0
        self._text_ended = False
        self._ended = False
        self.error: Exception | None = None
        self._runs: deque[tuple[PhonemeRun, Clause]] = deque()
        self._audio: ClauseAudio | None = None
        self._said: Clause | None = None
        self._position = 0
        self._words: tuple[WordMark, ...] = ()
        self._visemes: tuple[VisemeMark, ...] = ()
        self._began_s = 0.0
        self._spent_s = 0.0

    # -- the loop's side ------------------------------------------------------------------------

    def feed(self, clause: Clause) -> None:
        """Append a clause; wake the pool afterwards."""
        self._clauses.append(clause)

    def finish(self) -> None:
        """No clause follows; wake the pool afterwards."""
        self._text_ended = True

    @property
    def waiting_clauses(self) -> int:
        """Clauses that have not been started."""
        return len(self._clauses)

    def take(self) -> PcmChunk | None:
        """The next chunk, or None if there is none yet; wake the pool afterwards.

        Raises:
            SynthesisFailed: A step failed and everything before it has been taken.
            EngineDied: No step can follow, for anybody.
        """
        if self._chunks:
            chunk = self._chunks.popleft()
            self._taken += len(chunk.samples)
            return chunk
        if isinstance(self.error, EngineDied):
            raise EngineDied from self.error
        if self.error is not None:
            raise SynthesisFailed("the engine failed on this utterance") from self.error
        return None

    # -- the pool's side ------------------------------------------------------------------------

    def has_step(self) -> bool:
        """See `Work.has_step`."""
        if self._ended or self.error is not None:
            return False
        if self._buffered - self._taken >= self._max_buffered:
            return False
        return bool(self._audio or self._runs or self._clauses or self._text_ended)

    def fail(self, error: Exception) -> None:
        """See `Work.fail`."""
        self.error = error
        self._arrived()

    def step(self) -> float:
        """See `Work.step`."""
        began = time.perf_counter()
        try:
            return self._step(began)
        finally:
            self._spent_s += time.perf_counter() - began

    def _step(self, began: float) -> float:
        self._began_s = began
        if self._audio is not None:
            return self._render()
        if self._runs:
            self._begin(*self._runs.popleft())
            return self._render()
        if self._clauses:
            clause = self._clauses.popleft()
            runs = self._model.phonemes(clause.text, normalize=self._normalize)
            self._runs.extend((run, clause) for run in runs)
            if self._runs:
                self._begin(*self._runs.popleft())
                return self._render()
            self._arrived()
            return 0.0
        self._ended = True
        self._give(silence(0), final=True)
        return 0.0

    def _begin(self, run: PhonemeRun, clause: Clause) -> None:
        delivery = self._delivery
        if self._said is not None and self._said is not clause:
            samples = pause_between(self._said, clause, delivery.speed, delivery.sentence_pause_ms)
            self._give(silence(samples))
        self._said = clause
        self._audio = ClauseAudio(
            self._model, run, self._delivery, self._rng, clause.char_start, self._position
        )
        self._words, self._visemes = self._audio.words, self._audio.visemes

    def _render(self) -> float:
        audio = self._audio
        assert audio is not None
        wave = audio.render()
        if audio.finished:
            self._audio = None
        if not len(wave):
            return 0.0
        if not np.isfinite(wave).all():
            raise SynthesisFailed("the model gave samples that are no numbers")
        self._give(wave)
        return len(wave) / SAMPLE_RATE

    def _give(self, samples: Samples, *, final: bool = False) -> None:
        now = time.perf_counter()
        chunk = PcmChunk(
            samples,
            self._position,
            self._words,
            self._visemes,
            final,
            compute_s=self._spent_s + now - self._began_s,
        )
        # What this step has used so far belongs to this chunk; the rest of it to the next one.
        self._spent_s = self._began_s - now
        self._words, self._visemes = (), ()
        self._position += len(samples)
        self._buffered += len(samples)
        self._chunks.append(chunk)
        self._arrived()
