"""Words that are to be read in another way than they are written: ``重庆`` as ``chong2 qing4``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cosyvoice_stream.errors import InvalidOption, LimitExceeded
from cosyvoice_stream.streaming import pinyin
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.speech_marks import Kind, Piece, parse

MAX_ENTRIES: Final = 20_000
MAX_WORD_CHARS: Final = 64
MAX_READING_CHARS: Final = 256
_KEPT: Final = 64
"""Compiled lexicons that are kept for the next utterance of the same session."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a word is read: plain words and marks, in order."""

    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class _Node:
    """A prefix of some words."""

    next: dict[str, _Node] = field(default_factory=dict)
    reading: Reading | None = None


class Lexicon:
    """Words and their readings, compiled. Immutable; may be shared.

    A word of small letters is found in any capitals, one with capitals only as it is written; a
    Latin letter or a digit at either end of a word must not touch another one in the text. A
    reading is words, marks of `speech_marks`, or Mandarin syllables with tones (``chong2 qing4``,
    ``chóng qìng``); an empty one leaves the word out.

    Args:
        entries: Word → reading.

    Raises:
        InvalidOption: A word or a reading cannot be used; the text names the entry by its number.
        LimitExceeded: There are too many.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        if len(entries) > MAX_ENTRIES:
            raise LimitExceeded("words in a lexicon", MAX_ENTRIES, len(entries))
        self.entries: Mapping[str, str] = dict(entries)
        self._exact = _Node()
        self._folded = _Node()
        for number, (word, reading) in enumerate(entries.items(), 1):
            _check_word(word, number)
            root = self._exact if word != word.lower() else self._folded
            node = root
            for char in word:
                node = node.next.setdefault(char, _Node())
            node.reading = read_entry(reading, number)

    @classmethod
    def empty(cls) -> Lexicon:
        """Make one without words."""
        return cls({})

    def __bool__(self) -> bool:
        return bool(self.entries)

    def match(self, text: str, start: int, final: bool) -> tuple[int, Reading | None] | None:
        """Find the longest word at a place.

        Args:
            text: What is known of the text.
            start: Index of the first character; the boundary in front of it is the caller's matter.
            final: Whether the text ends with `text`.

        Returns:
            Index after the word and its reading; ``(start, None)`` if there is none; None if more
            text decides.
        """
        best: tuple[int, Reading | None] = (start, None)
        for root, folds in ((self._exact, False), (self._folded, True)):
            node: _Node | None = root
            at = start
            while node is not None:
                if node.reading is not None and at > best[0]:
                    if at == len(text) and not final and joins(text[at - 1]):
                        return None
                    if at == len(text) or not (joins(text[at - 1]) and joins(text[at])):
                        best = (at, node.reading)
                if at == len(text):
                    if node.next and not final:
                        return None
                    break
                char = text[at]
                node = node.next.get(_fold(char) if folds else char)
                at += 1
        return best


def _check_word(word: str, number: int) -> None:
    if not word.strip() or word != word.strip() or len(word) > MAX_WORD_CHARS or "\n" in word:
        raise InvalidOption(
            "lexicon",
            f"word {number}",
            f"use words of 1 to {MAX_WORD_CHARS} characters without white space around them",
        )
    if any(char in word for char in "[]<>"):
        raise InvalidOption("lexicon", f"word {number}", "a word holds no brackets")


def read_entry(reading: str, number: int = 1) -> Reading:
    """Read the right side of an entry.

    Args:
        reading: As for `Lexicon`.
        number: Of the entry, for the error.

    Raises:
        InvalidOption: It is too long, or holds a mark that is none.
    """
    if len(reading) > MAX_READING_CHARS or "\n" in reading:
        raise InvalidOption(
            "lexicon",
            f"reading {number}",
            f"use one line of at most {MAX_READING_CHARS} characters",
        )
    syllables = [_toned(part) for part in reading.split()]
    if syllables and all(syllables):
        marks = "".join("".join(tokens or ()) for tokens in syllables)
        return Reading(parse(marks).pieces)
    parsed = parse(reading)
    if parsed.problems:
        raise InvalidOption("lexicon", f"reading {number}", str(parsed.problems[0]))
    return Reading(parsed.pieces)


def _toned(part: str) -> tuple[str, ...] | None:
    """Tokens of a syllable that says its tone; ``5`` is the neutral one."""
    toned = part[-1:] in "12345" or not part.isascii()
    return pinyin.to_tokens(part) if toned else None


@lru_cache(_KEPT)
def _compiled(entries: tuple[tuple[str, str], ...]) -> Lexicon:
    return Lexicon(dict(entries))


def compiled(entries: Mapping[str, str]) -> Lexicon:
    """Make a lexicon, or take the one that was made of the same entries; raises as `Lexicon`."""
    return _compiled(tuple(entries.items()))


def joins(char: str) -> bool:
    """Tell whether a word goes on over a character: letters of alphabets, digits, underscores."""
    return (char.isalnum() or char == "_") and char <= "\u2e7f"


def _fold(char: str) -> str:
    small = char.lower()
    return small if len(small) == 1 else char


class LexiconStage:
    """Replaces words in a text that arrives in fragments.

    The longest word wins; of equal ones that of the lexicon that was named first. What it gives out
    depends on the text alone, except that plain text may be cut anywhere; at most the length of the
    longest word is held back.

    Args:
        lexicons: The first one has precedence.
    """

    def __init__(self, lexicons: Iterable[Lexicon]) -> None:
        self._lexicons = [lexicon for lexicon in lexicons if lexicon]
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        self._text = MappedText.of("")
        self._before = ""

    def push(self, text: MappedText) -> list[Piece]:
        """Append plain text and take the pieces that are decided."""
        if not self._lexicons:
            return [Piece(Kind.TEXT, text)] if len(text) else []
        self._text = self._text + text
        return self._run(final=False)

    def flush(self) -> list[Piece]:
        """End the text and take the rest. The next push starts a new text."""
        pieces = self._run(final=True)
        self.reset()
        return pieces

    def break_here(self) -> list[Piece]:
        """Take everything so far, as if the text ended here; the text goes on."""
        return self._run(final=True)

    def _run(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        text = self._text
        plain_from = pos = 0
        while pos < len(text):
            found = self._match(text.text, pos, final)
            if found is None:
                break
            end, reading = found
            if reading is None:
                pos += 1
                continue
            self._plain(text[plain_from:pos], pieces)
            start, stop = text.source_span(pos, end)
            pieces += [_standing_for(piece, start, stop) for piece in reading.pieces]
            self._before = text.text[end - 1]
            pos = plain_from = end
        self._plain(text[plain_from:pos], pieces)
        self._text = text[pos:]
        return pieces

    def _match(self, text: str, pos: int, final: bool) -> tuple[int, Reading | None] | None:
        before = text[pos - 1] if pos else self._before
        best: tuple[int, Reading | None] = (pos, None)
        if before and joins(before) and joins(text[pos]):
            return best
        for lexicon in self._lexicons:
            found = lexicon.match(text, pos, final)
            if found is None:
                return None
            if found[0] > best[0]:
                best = found
        return best

    def _plain(self, text: MappedText, pieces: list[Piece]) -> None:
        if len(text):
            pieces.append(Piece(Kind.TEXT, text))
            self._before = text.text[-1]


def _standing_for(piece: Piece, start: int, end: int) -> Piece:
    source = MappedText.standing_for(piece.source.text, start, end)
    return Piece(piece.kind, source, piece.symbols)
