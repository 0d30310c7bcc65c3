"""One utterance out of several: stretches in different manners, pauses between them, bookmarks.

::

    text and cues ─► segment ─► engine ─► chunks ─┐
                     pause ───► silence ──────────┼─► one stream of chunks, positions counted on
                     segment ─► engine ─► chunks ─┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from cosyvoice_stream.errors import VoiceNotFound, VoiceStreamError
from cosyvoice_stream.server.speech_events import WarningOut
from cosyvoice_stream.streaming.pcm import silence
from cosyvoice_stream.streaming.ssml import Bookmark, Manner, Pause
from cosyvoice_stream.streaming.trimmer import Trimmer
from cosyvoice_stream.types import (
    PITCH_RANGE_SEMITONES,
    SPEED_RANGE,
    VOLUME_RANGE,
    BookmarkMark,
    EngineInfo,
    Feature,
    Flush,
    PcmChunk,
    Samples,
    SynthesisOptions,
    TextStream,
    VisemeMark,
    Voice,
    WordMark,
)

Cue: TypeAlias = Manner | Pause | Bookmark
Speak: TypeAlias = Callable[[TextStream, Manner], AsyncGenerator[PcmChunk, None]]
"""Speaks one segment; the last chunk is final."""

_SILENCE_S: Final = 1.0
"""Longest chunk of silence."""


def in_manner(options: SynthesisOptions, manner: Manner) -> SynthesisOptions:
    """Apply a manner to the options of an utterance, as far as the ranges allow."""
    return replace(
        options,
        speed=_within(options.speed * manner.speed, SPEED_RANGE),
        pitch=_within(options.pitch + manner.pitch, PITCH_RANGE_SEMITONES),
        volume=_within(options.volume * manner.volume, VOLUME_RANGE),
        language=manner.language or options.language,
    )


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def speak_ssml(
    items: AsyncGenerator[str | Flush | Cue, None],
    make: Callable[[TextStream, Voice, SynthesisOptions], AsyncGenerator[PcmChunk, None]],
    info: EngineInfo,
    find_voice: Callable[[str], Awaitable[Voice]],
    voice: Voice,
    options: SynthesisOptions,
    notes: list[WarningOut],
) -> AsyncGenerator[PcmChunk, None]:
    """Speak text with cues as one utterance.

    Args:
        items: Text and cues in order; closed with the result.
        make: Speaks one part.
        info: Of the engine.
        find_voice: Raises `VoiceNotFound`; the utterance's own voice goes on then.
        voice: Of the utterance.
        options: Of the utterance.
        notes: Gets what cannot be done.
    """

    async def segment(text: TextStream, manner: Manner) -> AsyncGenerator[PcmChunk, None]:
        speaker = voice
        if manner.voice is not None:
            try:
                speaker = await find_voice(manner.voice)
            except VoiceNotFound:
                notes.append(WarningOut("a voice of the text is not known"))
        if manner.pitch and Feature.PITCH not in info.features:
            notes.append(WarningOut("the engine does not change the pitch"))
        async with aclosing(make(text, speaker, in_manner(options, manner))) as made:
            async for chunk in made:
                yield chunk

    word_times = Feature.WORD_TIMES in info.features
    return Segments(items, segment, info.sample_rate, word_times=word_times).chunks()


class _Feed:
    """Text and cues, given out segment by segment.

    Args:
        items: In order.
        word_times: Bookmarks are timed by the word behind them, so that they part nothing.
    """

    def __init__(self, items: AsyncGenerator[str | Flush | Cue, None], *, word_times: bool) -> None:
        self.given = 0
        """Characters of text that have been given out."""
        self.cue: Cue | None = None
        """What ended the segment, or stands in front of the next one."""
        self.error: VoiceStreamError | None = None
        """What ended the text; what was said before it is still spoken."""
        self.bookmarks: deque[tuple[int, Bookmark]] = deque()
        """Within the segment: the character behind each."""
        self._items = items
        self._word_times = word_times
        self._first: str | None = None

    async def more(self) -> bool:
        """Go on to the next text or cue; False at the end."""
        self.cue = None
        while self._first is None:
            item = await self._take()
            if item is None:
                return False
            if isinstance(item, str):
                if item.strip():
                    self._first = item
                else:
                    self.given += len(item)
            elif not isinstance(item, Flush):
                self.cue = item
                return True
        return True

    async def text(self) -> AsyncGenerator[str | Flush, None]:
        """The text of a segment; it ends in front of the next cue that parts it."""
        item: str | Flush | Cue | None
        item, self._first = self._first, None
        while item is not None:
            if isinstance(item, str):
                self.given += len(item)
                yield item
            elif isinstance(item, Flush):
                yield item
            elif isinstance(item, Bookmark) and self._word_times:
                self.bookmarks.append((self.given, item))
            else:
                self.cue = item
                return
            item = await self._take()

    async def _take(self) -> str | Flush | Cue | None:
        if self.error is not None:
            return None
        try:
            return await anext(self._items, None)
        except VoiceStreamError as error:
            self.error = error
            return None


class Segments:
    """Speaks text with cues as one utterance.

    A pause is exactly as long as it says: silence of the engine next to it is cut off. A bookmark
    is reported with the chunk in which it is heard, or before.

    Args:
        items: Text and cues in order; closed by `chunks`.
        speak: Speaks a segment.
        sample_rate: Of the chunks, in hertz.
        word_times: Whether the engine tells when each word is heard.
    """

    def __init__(
        self,
        items: AsyncGenerator[str | Flush | Cue, None],
        speak: Speak,
        sample_rate: int,
        *,
        word_times: bool,
    ) -> None:
        self._items = items
        self._speak = speak
        self._rate = sample_rate
        self._feed = _Feed(items, word_times=word_times)
        self._position = 0
        """Samples given out so far."""
        self._bookmarks: list[BookmarkMark] = []
        """For the next chunk."""
        self._after_pause = False

    async def chunks(self) -> AsyncGenerator[PcmChunk, None]:
        """The utterance.

        Raises:
            VoiceStreamError: As the items or the engine; what came before has been given out.
        """
        feed = self._feed
        manner = Manner()
        async with aclosing(self._items):
            while await feed.more():
                if feed.cue is None:
                    async with aclosing(self._segment(manner)) as made:
                        async for chunk in made:
                            yield chunk
                match feed.cue:
                    case Manner():
                        manner = feed.cue
                    case Bookmark():
                        self._bookmarks.append(BookmarkMark(feed.cue.name, self._position))
                    case Pause():
                        for chunk in self._pause(feed.cue):
                            yield chunk
            if feed.error is not None:
                raise feed.error
            yield self._chunk(silence(0), final=True)

    def _pause(self, pause: Pause) -> list[PcmChunk]:
        self._after_pause = True
        samples = round(pause.ms * self._rate / 1000)
        longest = round(_SILENCE_S * self._rate)
        parts = [min(longest, samples - start) for start in range(0, samples, longest)]
        return [self._chunk(silence(part)) for part in parts]

    async def _segment(self, manner: Manner) -> AsyncGenerator[PcmChunk, None]:
        feed = self._feed
        first_char, first_sample = feed.given, self._position
        edges = Trimmer(self._rate, head_ms=0 if self._after_pause else None, tail_ms=0)
        words: list[WordMark] = []
        visemes: list[VisemeMark] = []
        async with aclosing(self._speak(feed.text(), manner)) as made:
            async for chunk in made:
                samples = edges.push(chunk.samples)
                words += chunk.words
                visemes += chunk.visemes
                if chunk.final and not isinstance(feed.cue, Pause):
                    samples = np.concatenate([samples, edges.take_tail()])
                if len(samples):
                    self._after_pause = False
                    shift = first_sample + (edges.shift or 0)
                    moved = [_moved(word, shift, first_char) for word in words]
                    self._meet_bookmarks(moved)
                    shapes = tuple(_placed(shape, shift) for shape in visemes)
                    yield self._chunk(samples, tuple(moved), shapes, compute_s=chunk.compute_s)
                    words, visemes = [], []
        while feed.bookmarks:
            name = feed.bookmarks.popleft()[1].name
            self._bookmarks.append(BookmarkMark(name, self._position))

    def _meet_bookmarks(self, words: list[WordMark]) -> None:
        """Give bookmarks the time of the word behind them."""
        waiting = self._feed.bookmarks
        for word in words:
            while waiting and waiting[0][0] <= word.char_start:
                name = waiting.popleft()[1].name
                self._bookmarks.append(BookmarkMark(name, word.start_sample))

    def _chunk(
        self,
        samples: Samples,
        words: tuple[WordMark, ...] = (),
        visemes: tuple[VisemeMark, ...] = (),
        *,
        final: bool = False,
        compute_s: float | None = None,
    ) -> PcmChunk:
        bookmarks, self._bookmarks = tuple(self._bookmarks), []
        start, self._position = self._position, self._position + len(samples)
        return PcmChunk(samples, start, words, visemes, final, compute_s, bookmarks)


def _moved(word: WordMark, samples: int, chars: int) -> WordMark:
    return replace(
        word,
        char_start=word.char_start + chars,
        char_end=word.char_end + chars,
        start_sample=max(0, word.start_sample + samples),
        end_sample=max(0, word.end_sample + samples),
    )


def _placed(shape: VisemeMark, samples: int) -> VisemeMark:
    return replace(
        shape,
        start_sample=max(0, shape.start_sample + samples),
        end_sample=max(0, shape.end_sample + samples),
    )
