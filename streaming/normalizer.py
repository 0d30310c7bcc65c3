"""Text in fragments → the words that are spoken, with numbers, signs and codes read out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from cosyvoice_stream.streaming import normalize_other
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.normalize_en import read_en
from cosyvoice_stream.streaming.normalize_ja import read_ja
from cosyvoice_stream.streaming.normalize_zh import read_yue, read_zh
from cosyvoice_stream.streaming.phrases import LONGEST_RUN, WAIT, phrase, plain_end
from cosyvoice_stream.streaming.readings import Reading
from cosyvoice_stream.streaming.sentence_language import SentenceLanguage

_CONTEXT: Final = 32
"""Characters in front of a phrase that its rules may look at."""
_DIGIT: Final = re.compile(r"\d")
_FULL_WIDTH: Final = str.maketrans(
    {0xFF10 + digit: 0x30 + digit for digit in range(10)}
    | {"％": "%", "￥": "¥", "．": ".", "\u00a0": " ", "\u202f": " "}
)

Reader: TypeAlias = Callable[[str, int, int], Sequence[Reading]]

_READERS: Final[dict[str, Reader]] = {
    "zh": read_zh,
    "yue": read_yue,
    "en": read_en,
    "ja": read_ja,
}


def reader_of(language: str) -> Reader | None:
    """Find the rules of a language; None if there are none."""
    if language in _READERS:
        return _READERS[language]
    return normalize_other.reader(language) if normalize_other.supports(language) else None


class Unread(NamedTuple):
    """The first number of a language for which there are no words."""

    language: str
    char_start: int
    """Index of its first character in the pushed text."""
    char_end: int


class Normalizer:
    """Reads numbers, dates, times, money, units, addresses, codes and abbreviations as words.

    The words are those of the language of the sentence. What is read depends on the text alone, not
    on its fragments: the end of a number is held until the next characters decide, never more than
    a bounded number of them. Spans in the result are positions in the pushed text.

    Args:
        language: BCP 47 tag of all of the text; None finds it sentence by sentence.
    """

    def __init__(self, language: str | None = None) -> None:
        self._language = language
        self._unread: list[Unread] = []
        self._certain: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        self._text = MappedText("", (), ())
        """What is not read yet, behind some context."""
        self._pos = 0
        """Where reading goes on in `_text`."""
        self._received = 0
        self._languages = SentenceLanguage(self._language)
        self._unread_languages: set[str] = set()

    @property
    def holds(self) -> bool:
        """Whether text is held until more of it comes."""
        return self._pos < len(self._text)

    def push(self, text: str | MappedText) -> list[MappedText]:
        """Append a fragment and take the words that no further text can change."""
        if isinstance(text, str):
            text = MappedText.of(text, self._received)
        self._received += len(text)
        self._text = self._text + text if self._text.text else text
        return self._read(final=False)

    def flush(self) -> list[MappedText]:
        """End the text and take the rest. The next push starts a new text."""
        rest = self._read(final=True)
        self._languages.end()
        self._certain |= self._languages.certain
        self.reset()
        return rest

    def break_here(self) -> list[MappedText]:
        """Take everything so far, as if the text ended here; the text goes on."""
        return self._read(final=True)

    def take_unread(self) -> list[Unread]:
        """Take what stayed as it is because its language is not supported, once per language."""
        unread, self._unread = self._unread, []
        return unread

    def take_languages(self) -> set[str]:
        """Take the languages in Latin script that sentences were in beyond doubt."""
        languages = self._certain | self._languages.certain
        self._certain = set()
        self._languages.certain = set()
        return languages

    def _read(self, *, final: bool) -> list[MappedText]:
        mapped = self._text
        text = mapped.text.translate(_FULL_WIDTH)
        pos = self._pos
        parts: list[MappedText] = []
        while pos < len(text):
            end = plain_end(text, pos)
            if end > pos:
                self._languages.pass_by(text[pos:end])
                parts.append(mapped[pos:end])
                pos = end
                continue
            found = phrase(text, pos, final)
            if found is WAIT:
                break
            assert not isinstance(found, type(WAIT))
            end = found.end
            if found.spoken_as_is:
                parts.append(mapped[pos:end])
            else:
                language = self._languages.at(text, pos, end, final)
                if language is None:
                    break
                parts += self._spoken(mapped, text, pos, end, language)
            self._languages.pass_by(text[pos:end])
            pos = end
        start = max(0, pos - _CONTEXT)
        self._text = mapped[start:]
        self._pos = pos - start
        return [MappedText.join(parts)] if parts else []

    def _spoken(
        self, mapped: MappedText, text: str, pos: int, end: int, language: str
    ) -> list[MappedText]:
        reader = reader_of(language)
        if reader is None:
            if language not in self._unread_languages and _DIGIT.search(text, pos, end):
                self._unread_languages.add(language)
                self._unread.append(Unread(language, *mapped.source_span(pos, end)))
            return [mapped[pos:end]]
        context = max(0, pos - _CONTEXT)
        # What goes on behind the longest phrase must not look like a part of it.
        seen = end if end - pos >= LONGEST_RUN else end + 1
        readings = reader(text[context:seen], pos - context, end - context)
        parts = []
        for first, last, words in readings:
            start, stop = first + context, last + context
            if start > pos:
                parts.append(mapped[pos:start])
            source = mapped.source_span(start, stop)
            parts.append(MappedText.standing_for(words, *source))
            pos = stop
        parts.append(mapped[pos:end])
        return parts
