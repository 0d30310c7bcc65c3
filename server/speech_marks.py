"""Marks of an engine as clients get them: in milliseconds, in the client's own text."""

from __future__ import annotations

from cosyvoice_stream.server.speech_events import MarksOut
from cosyvoice_stream.server.text_way import TextWay
from cosyvoice_stream.server.wire_replies import BookmarkTime, MouthTimes, VisemeTime, WordTime
from cosyvoice_stream.streaming.mouth import STEP_MS, MouthTrack
from cosyvoice_stream.types import PcmChunk, VisemeMark, WordMark


class SpeechMarks:
    """Makes the marks of one utterance.

    Args:
        way: Knows where a character of the engine's text stands in the client's.
        sample_rate: Of the engine, in hertz.
        mouth: Make a track of the mouth as well.
    """

    def __init__(self, way: TextWay, sample_rate: int, *, mouth: bool = False) -> None:
        self._way = way
        self._rate = sample_rate
        self._mouth = MouthTrack(sample_rate) if mouth else None

    def push(self, chunk: PcmChunk) -> MarksOut | None:
        """The marks that come in front of a chunk, if there are any."""
        mouth = self._mouth_of(chunk)
        if not (chunk.words or chunk.visemes or chunk.bookmarks or mouth):
            return None
        return MarksOut(
            tuple(self._word(word) for word in self._way.in_client_text(chunk.words)),
            tuple(self._viseme(shape) for shape in chunk.visemes),
            tuple(
                BookmarkTime(name=mark.name, at_ms=self._ms(mark.sample))
                for mark in chunk.bookmarks
            ),
            mouth,
        )

    def _mouth_of(self, chunk: PcmChunk) -> MouthTimes | None:
        if self._mouth is None:
            return None
        start_ms = self._mouth.given * STEP_MS
        values = self._mouth.push(chunk.samples, chunk.visemes, final=chunk.final)
        if not values:
            return None
        return MouthTimes(start_ms=start_ms, step_ms=STEP_MS, values=values)

    def _word(self, word: WordMark) -> WordTime:
        return WordTime(
            text=word.text,
            char_start=word.char_start,
            char_end=word.char_end,
            start_ms=self._ms(word.start_sample),
            end_ms=self._ms(word.end_sample),
        )

    def _viseme(self, shape: VisemeMark) -> VisemeTime:
        return VisemeTime(
            viseme=shape.viseme.value,
            mouth_open=round(shape.mouth_open, 3),
            start_ms=self._ms(shape.start_sample),
            end_ms=self._ms(shape.end_sample),
        )

    def _ms(self, sample: int) -> float:
        return round(sample * 1000 / self._rate, 1)
