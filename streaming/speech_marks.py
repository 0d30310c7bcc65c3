"""Marks within a text that say how it sounds: ``[laughter]``, ``[AY0]``, ``[h][ào]``."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cosyvoice_stream.streaming import pinyin
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.mark_tokens import (
    ARPABET,
    ARPABET_VOWELS,
    PINYIN,
    PINYIN_FINALS,
    PINYIN_INITIALS,
    SOUNDS,
)

__all__ = ["ARPABET", "PINYIN", "SOUNDS", "Kind", "Parsed", "Piece", "Problem", "SpeechMarks"]

_MAX_RUN: Final = 48
"""Brackets that are read together; a run of more is cut."""
_LONGEST: Final = 24
"""Characters of a mark, letters in decomposed form included."""
_MARK: Final = re.compile(
    rf"\[([^\[\]\s<>]{{1,{_LONGEST - 2}}})\]|</?(?:strong|laughter)>", re.IGNORECASE
)
_STARTING: Final = re.compile(rf"(?:\[[^\[\]\s<>]{{0,{_LONGEST - 2}}}|</?[a-zA-Z]{{0,8}})\Z")
_TAG_STARTS: Final = tuple(sound for sound in SOUNDS if sound[0] == "<")
_TONED: Final = re.compile("[\u0300\u0301\u0304\u030c]|[0-4]$")
_NEAR_SOUND: Final = 0.7
"""Likeness (`difflib`) from which a word in brackets is taken for a misspelt sound: "laughing" and
"laughter" have 0.75, "sighs" and "sigh" 0.89, "coughing" and "cough" 0.77."""
_SOUND_WORDS: Final = {
    **{sound[1:-1]: sound for sound in SOUNDS if sound[0] == "["},
    "laugh": "[laughter]",
    "laughs": "[laughter]",
    "chuckle": "[laughter]",
    "chuckles": "[laughter]",
    "breathe": "[breath]",
    "inhale": "[breath]",
}


class Kind(StrEnum):
    """What a piece of text is."""

    TEXT = "text"
    SOUND = "sound"
    PHONEMES = "phonemes"
    """A word, or part of one, in ARPAbet."""
    PINYIN = "pinyin"
    """One Mandarin syllable."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text of one kind."""

    kind: Kind
    source: MappedText
    """As it was written. Plain text may hold brackets, which are no marks: an engine must not look
    for its tokens there."""
    symbols: tuple[str, ...] = ()
    """Tokens in the spelling of `SOUNDS`, `ARPABET` or `PINYIN`; empty for plain text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that looks like a mark and is none. It stays in the text as it was written."""

    char_start: int
    """Index of its first character in the caller's text."""
    char_end: int
    """Index after its last character."""
    message: str
    """What is wrong, without the user's words."""
    suggestion: str | None = None
    """What was probably meant, to be put in its place."""

    def __str__(self) -> str:
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.message} at character {self.char_start}{hint}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole text with its marks."""

    pieces: tuple[Piece, ...]
    problems: tuple[Problem, ...]


class SpeechMarks:
    """Finds marks in a text that arrives in fragments.

    A mark is a sound (`SOUNDS`); a run of `ARPABET` brackets with at least one vowel; or a
    `PINYIN` syllable, which needs an initial or a tone mark and no Latin letter in front.
    Everything else is plain text: ``[1]``, ``[B]``, ``a[i][j]``. What comes close to a mark
    (``[AY9]``, ``[hao3]``, ``[laughs]``) is plain text and a `Problem`.

    Pieces depend on the text alone, not on its fragments, except that plain text may be cut
    anywhere. At most `_MAX_RUN` brackets are held back.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        self._text = MappedText.of("")
        self._before = ""
        """Character in front of `_text`."""
        self._problems: list[Problem] = []
        self._open: list[tuple[str, Problem]] = []
        """Spans that are open, and what is wrong if they are never closed."""

    def push(self, text: MappedText) -> list[Piece]:
        """Append a fragment and take the pieces that are decided."""
        self._text = self._text + text
        return self._run(final=False)

    def flush(self) -> list[Piece]:
        """End the text and take the rest. The next push starts a new text."""
        pieces = self._run(final=True)
        self._problems += [problem for _, problem in self._open]
        problems = self._problems
        self.reset()
        self._problems = problems
        return pieces

    def break_here(self) -> list[Piece]:
        """Take everything so far, as if the text ended here; the text goes on."""
        return self._run(final=True)

    def take_problems(self) -> list[Problem]:
        """Take what was found wrong since the last call."""
        problems, self._problems = self._problems, []
        return problems

    def _run(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        text, pos = self._text, 0
        while pos < len(text):
            found = _MARK.search(text.text, pos)
            if found is None:
                end = len(text) if final else _undecided_from(text.text, pos)
                self._plain(text[pos:end], pieces)
                pos = end
                break
            self._plain(text[pos : found.start()], pieces)
            pos = found.start()
            sound = _sound(found[0])
            if sound is not None:
                self._note_span(sound, text[pos : found.end()])
                self._add(Piece(Kind.SOUND, text[pos : found.end()], (sound,)), pieces)
                pos = found.end()
                continue
            ends = _run_of_brackets(text.text, pos)
            more = ends[-1] == len(text) or _STARTING.match(text.text, ends[-1]) is not None
            if more and len(ends) < _MAX_RUN and not final:
                break
            self._brackets(text, pos, ends, pieces)
            pos = ends[-1]
        self._text = text[pos:]
        return pieces

    def _add(self, piece: Piece, pieces: list[Piece]) -> None:
        if len(piece.source):
            pieces.append(piece)
            self._before = piece.source.text[-1]

    def _plain(self, text: MappedText, pieces: list[Piece]) -> None:
        self._add(Piece(Kind.TEXT, text), pieces)

    def _note_span(self, sound: str, source: MappedText) -> None:
        if sound[0] != "<":
            return
        start, end = source.source_span(0, len(source))
        if sound[1] != "/":
            closing = f"</{sound[1:]}"
            self._open.append((sound, Problem(start, end, f"{sound} has no {closing} behind it")))
            return
        opening = f"<{sound[2:]}"
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at][0] == opening:
                del self._open[at]
                return
        self._problems.append(Problem(start, end, f"{sound} has no {opening} in front of it"))

    def _brackets(
        self, text: MappedText, start: int, ends: Sequence[int], pieces: list[Piece]
    ) -> None:
        """Read a run of adjacent brackets that are no sounds."""
        starts = (start, *ends[:-1])
        sources = [text[first:last] for first, last in zip(starts, ends, strict=True)]
        tokens = [unicodedata.normalize("NFC", source.text) for source in sources]
        after_letter = self._before.isascii() and self._before.isalnum()
        at = 0
        found: list[Piece] = []
        problems: list[Problem] = []
        while at < len(tokens):
            names = next((s for s in (ARPABET, PINYIN) if tokens[at] in s), None)
            end = at + 1
            while end < len(tokens) and names is not None and tokens[end] in names:
                end += 1
            group = slice(at, end)
            if names is None:
                problem = _unknown(tokens, at, sources[at])
                problems += [problem] if problem else []
                found.append(Piece(Kind.TEXT, sources[at]))
            elif names is ARPABET:
                found.append(_phonemes(tokens[group], sources[group]))
            elif after_letter and not found:
                found.append(Piece(Kind.TEXT, MappedText.join(sources[group])))
            else:
                read, problem = _syllables(tokens[group], sources[group])
                problems += [problem] if problem else []
                found += read
            at = end
        if problems:
            self._problems += problems
            self._plain(MappedText.join(sources), pieces)
            return
        for piece in found:
            self._add(piece, pieces)


def parse(text: str | MappedText) -> Parsed:
    """Find the marks of a whole text; neighbouring plain text is joined."""
    stage = SpeechMarks()
    pieces = stage.push(MappedText.of(text) if isinstance(text, str) else text) + stage.flush()
    return Parsed(tuple(join_plain(pieces)), tuple(stage.take_problems()))


def join_plain(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring pieces of plain text."""
    joined: list[Piece] = []
    plain: list[MappedText] = []
    for piece in pieces:
        if piece.kind is Kind.TEXT:
            plain.append(piece.source)
            continue
        if plain:
            joined.append(Piece(Kind.TEXT, MappedText.join(plain)))
            plain = []
        joined.append(piece)
    if plain:
        joined.append(Piece(Kind.TEXT, MappedText.join(plain)))
    return joined


def _sound(mark: str) -> str | None:
    name = mark.lower()
    return name if name in SOUNDS else None


def _undecided_from(text: str, pos: int) -> int:
    """Index from which a text may go on as a mark; its length if it cannot."""
    found = _STARTING.search(text, max(pos, len(text) - _LONGEST))
    if found is None:
        return len(text)
    start = found[0].lower()
    if start[0] == "<" and not any(tag.startswith(start) for tag in _TAG_STARTS):
        return len(text)
    return found.start()


def _run_of_brackets(text: str, start: int) -> list[int]:
    """Ends of the adjacent brackets from `start` that are no sounds."""
    ends: list[int] = []
    at = start
    while len(ends) < _MAX_RUN:
        found = _MARK.match(text, at)
        if found is None or _sound(found[0]) is not None:
            break
        at = found.end()
        ends.append(at)
    return ends


def _phonemes(tokens: Sequence[str], sources: Sequence[MappedText]) -> Piece:
    source = MappedText.join(sources)
    if ARPABET_VOWELS.isdisjoint(tokens):
        return Piece(Kind.TEXT, source)
    return Piece(Kind.PHONEMES, source, tuple(tokens))


def _syllables(
    tokens: Sequence[str], sources: Sequence[MappedText]
) -> tuple[list[Piece], Problem | None]:
    """Read a run of pinyin tokens as syllables, as text, or as text with a problem."""
    plain = [Piece(Kind.TEXT, MappedText.join(sources))]
    toned = any(_has_tone(token) for token in tokens)
    if len(tokens) == 1 and not toned:
        return plain, None
    cut = pinyin.syllables(tokens)
    if cut is None:
        if not toned:
            return plain, None
        return plain, _ill_formed(tokens, sources)
    pieces = []
    at = 0
    for symbols in cut:
        end = at + len(symbols)
        pieces.append(Piece(Kind.PINYIN, MappedText.join(sources[at:end]), symbols))
        at = end
    return pieces, None


def _ill_formed(tokens: Sequence[str], sources: Sequence[MappedText]) -> Problem:
    for at, token in enumerate(tokens):
        behind = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in PINYIN_INITIALS and behind not in PINYIN_FINALS:
            start, end = sources[at].source_span(0, len(sources[at]))
            return Problem(start, end, f"no final follows the pinyin initial {token}")
    raise AssertionError("the run is well formed")


def _has_tone(token: str) -> bool:
    return _TONED.search(unicodedata.normalize("NFD", token[1:-1])) is not None


def _unknown(tokens: Sequence[str], at: int, source: MappedText) -> Problem | None:
    """Tell whether a bracket that is no token comes close to one."""
    start, end = source.source_span(0, len(source))
    name = tokens[at][1:-1]
    neighbours = [token for token in tokens if token in ARPABET or token in PINYIN]
    upper = f"[{name.upper()}]"
    bare = f"[{name.upper().rstrip('0123456789')}]"
    in_arpabet = not ARPABET.isdisjoint(neighbours)
    if upper in ARPABET_VOWELS and (upper[-2].isdigit() or in_arpabet):
        return Problem(start, end, "ARPAbet is written in capitals", upper)
    if in_arpabet and not name.isdecimal():
        near = bare if bare in ARPABET else None
        return Problem(start, end, "this is no ARPAbet symbol", near)
    syllable = pinyin.to_tokens(name) if len(name) > 1 else None
    if syllable is not None and (_has_tone(tokens[at]) or neighbours):
        return Problem(start, end, "a syllable is written as initial and final", "".join(syllable))
    if neighbours and _has_tone(tokens[at]):
        return Problem(start, end, "this is no pinyin initial or final")
    close = difflib.get_close_matches(name.lower(), _SOUND_WORDS, n=1, cutoff=_NEAR_SOUND)
    if close and len(name) > 3:
        return Problem(start, end, "this is no sound", _SOUND_WORDS[close[0]])
    return None
