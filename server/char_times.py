"""When each character of a text is heard, from the times of its words.

Between two words, spaces and punctuation share the pause. An engine that tells no word times gives
an even spread over the whole utterance, which is known at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cosyvoice_stream.server.wire_replies import WordTime


class CharTime(NamedTuple):
    """One character of the text as it was sent."""

    char: str
    start_ms: float
    end_ms: float


class CharTimes:
    """Grows with the text and the words of one utterance.

    Args:
        text: What is known of it already.
    """

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._first = 0
        self._at_ms = 0.0
        self._ready: list[CharTime] = []

    @property
    def text(self) -> str:
        """What has been added, but for what was taken."""
        return self._text

    def add_text(self, text: str) -> None:
        """Append text."""
        self._text += text

    def add_words(self, words: Iterable[WordTime]) -> None:
        """Take the times of words, in order."""
        for word in words:
            if word.char_end > self._first:
                self._spread(max(word.char_start, self._first), word.start_ms)
                self._spread(word.char_end, word.end_ms)

    def take(self) -> list[CharTime]:
        """The characters whose times are known and were not taken before."""
        ready, self._ready = self._ready, []
        return ready

    def finish(self, total_ms: float) -> list[CharTime]:
        """The rest, up to the end of the audio.

        Args:
            total_ms: Length of the utterance.
        """
        self._spread(self._first + len(self._text), total_ms)
        return self.take()

    def _spread(self, char_end: int, end_ms: float) -> None:
        """Give the characters up to one place the time up to `end_ms`."""
        chars, self._text = (
            self._text[: char_end - self._first],
            self._text[char_end - self._first :],
        )
        self._first += len(chars)
        begin, end = self._at_ms, max(self._at_ms, end_ms)
        step = (end - begin) / max(1, len(chars))
        for place, char in enumerate(chars):
            start = begin + place * step
            self._ready.append(CharTime(char, start, start + step))
        self._at_ms = end
