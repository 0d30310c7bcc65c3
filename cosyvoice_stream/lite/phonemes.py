"""Clause → phonemes, each with the word of the caller that it belongs to and its mouth shape."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from cosyvoice_stream.lite.marks import with_phonemes, without_marks
from cosyvoice_stream.types import Viseme

logger = logging.getLogger(__name__)

MAX_WORD_CHARS: Final = 40
"""Longer runs of letters are no words; they are read in pieces."""
MAX_PHONEMES: Final = 400
"""What the acoustic model reads at once."""
BOUNDARY_ID: Final = 0
"""Stands before the first and after the last phoneme."""

# The rules read numbers up to quadrillions and fail on larger ones.
_LONG_NUMBER = re.compile(r"\d(?:,?\d){15,}")
_RARE_LATIN = re.compile("[\u0180-\u024f\u1e00-\u1eff]")
_PIECE = re.compile(rf"\S{{1,{MAX_WORD_CHARS}}}")
_EDGES = re.compile(r"^[^\w$€£¥%#@&+]+|[^\w%+#°]+$")

_GREEK_NAMES: Final = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "sigma tau upsilon phi chi psi omega"
)
_FINAL_SIGMA: Final = 0x3C2
_GREEK: Final = dict(
    zip(
        (chr(code) for code in range(0x3B1, 0x3CA) if code != _FINAL_SIGMA),
        _GREEK_NAMES.split(),
        strict=True,
    )
)
_MICRO = re.compile("\u03bc(?=[A-Za-z])")
_GREEK_LETTER = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03a9\u03b1-\u03c9](?![\u0370-\u03ff])")

_SHAPES: Final[dict[Viseme, tuple[str, float]]] = {
    Viseme.PP: ("pbmβɸ", 0.0),
    Viseme.FF: ("fvʋ", 0.15),
    Viseme.TH: ("θð", 0.2),
    Viseme.DD: ("tdTɾɖʈɽ", 0.2),
    Viseme.KK: ("kɡŋhxcqɟɣχʔ", 0.25),
    Viseme.CH: ("ʧʤʃʒʥʨɕʂçʝꭧ", 0.25),
    Viseme.SS: ("szʣʦS", 0.15),
    Viseme.NN: ("nlɲɳɴʎ", 0.2),
    Viseme.RR: ("ɹrɻʁɜɚ", 0.3),
    Viseme.AA: ("ɑaæʌɐAIWɒ", 0.9),
    Viseme.E: ("ɛeəᵊøœɤ", 0.55),
    Viseme.IH: ("ɪijᵻyɥɨ", 0.4),
    Viseme.OH: ("ɔoOQY", 0.65),
    Viseme.OU: ("ʊuwɯɰ", 0.35),
}
VISEME_OF: Final = {
    phoneme: (viseme, mouth_open)
    for viseme, (phonemes, mouth_open) in _SHAPES.items()
    for phoneme in phonemes
}
STRESS_MARKS: Final = frozenset("ˈˌ")
LENGTH_MARKS: Final = frozenset("ːʰʲ\u0303ᵝ")


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A word of the clause as the caller wrote it, without punctuation around it."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PhonemeRun:
    """What one call of the acoustic model says."""

    phonemes: str
    owners: tuple[int, ...]
    """For each phoneme the index of its word in `words`, or -1 for pauses and punctuation."""
    words: tuple[SourceWord, ...]


def spell_greek(text: str) -> str:
    """Write single Greek letters, as formulas have them, by name; Greek words stay."""
    return _GREEK_LETTER.sub(lambda m: f" {_GREEK[m.group().lower()]} ", _MICRO.sub("µ", text))


def readable(text: str) -> str:
    """Rewrite what the pronunciation rules fail on or drop: it may fall into several words.

    Greek letters become names, digits of very long numbers stand alone, signs such as "②" that only
    look like digits become digits, and Latin letters with rare accents lose them.
    """
    text = _LONG_NUMBER.sub(lambda m: " ".join(m.group().replace(",", "")), spell_greek(text))
    text = _RARE_LATIN.sub(_without_accent, text)
    if text.isascii():
        return text
    letters = []
    for index, char in enumerate(text):
        stands_alone = index == 0 or not text[index - 1].isalnum()
        if char.isdigit() and not char.isdecimal() and stands_alone:
            char = f" {unicodedata.digit(char)} "
        letters.append(char)
    return "".join(letters)


def _without_accent(found: re.Match[str]) -> str:
    plain = unicodedata.normalize("NFKD", found.group())
    return "".join(char for char in plain if char.isascii()) or found.group()


def foreign_letters(text: str) -> str:
    """The letters that the pronunciation rules drop without a word: those that are not Latin."""
    return "".join(char for char in readable(text) if not char.isascii() and _is_foreign(char))


def _is_foreign(char: str) -> bool:
    if not char.isalpha() or unicodedata.category(char) == "Lm":
        return False
    if char in "\N{MICRO SIGN}\N{OHM SIGN}":
        return False
    base = unicodedata.normalize("NFKC", char)[0]
    return not unicodedata.name(base, "").startswith("LATIN")


def source_words(text: str) -> list[SourceWord]:
    """Split at white space, and overlong runs every `MAX_WORD_CHARS` characters."""
    return [SourceWord(m.group(), m.start(), m.end()) for m in _PIECE.finditer(text)]


def bare(word: SourceWord) -> SourceWord:
    """Take punctuation off the edges; a word of nothing else stays as it is."""
    left = _EDGES.match(word.text)
    start = word.start + (left.end() if left else 0)
    text = word.text[start - word.start :]
    right = _EDGES.search(text)
    if right and right.start() > 0 and right.end() == len(text):
        text = text[: right.start()]
    return SourceWord(text, start, start + len(text)) if text else word


def _without_links(line: str) -> str:
    """Part "[…](…)", which the rules would take for a pronunciation to use as it stands."""
    return line.replace("](", "] (")


def align(originals: list[str], spoken: list[str]) -> list[tuple[int, int]]:
    """Map each spoken word to a range of original words.

    Equal words map to each other; where the normaliser rewrote some, each of its words maps to all
    of the originals that it replaced.
    """
    ranges = [(0, 1)] * len(spoken)
    matcher = SequenceMatcher(None, originals, spoken, autojunk=False)
    for tag, i0, i1, j0, j1 in matcher.get_opcodes():
        for j in range(j0, j1):
            if tag == "equal":
                ranges[j] = (i0 + j - j0, i0 + j - j0 + 1)
            elif tag == "replace":
                ranges[j] = (i0, i1)
            else:  # inserted words belong to their neighbour
                neighbour = max(0, i0 - 1)
                ranges[j] = (neighbour, neighbour + 1)
    return ranges


class Phonemizer:
    """Wraps the model's own grapheme-to-phoneme rules.

    Args:
        g2p: ``hibari.g2p.G2P``; used from several threads, it keeps no state between calls.
        vocabulary: Phoneme → id of the acoustic model.
    """

    def __init__(self, g2p: Any, vocabulary: dict[str, int]) -> None:
        from hibari.g2p.normalize import normalize

        self._g2p = g2p
        self._normalize = normalize
        self.vocabulary = vocabulary

    def __call__(self, text: str, *, normalize: bool) -> list[PhonemeRun]:
        """Phonemes of a clause.

        Args:
            text: One clause; see `lite.marks` for the marks in it.
            normalize: Read numbers, dates, units and abbreviations as words.

        Returns:
            Runs that the model can read, in order; none if the text has nothing to say.
        """
        unmarked, given = without_marks(text)
        originals = source_words(unmarked.text)
        read: list[str] = []
        sources: list[int] = []
        for index, original in enumerate(originals):
            pieces = readable(original.text).split()
            read += pieces
            sources += [index] * len(pieces)
        tokens, spoken = self._tokens(" ".join(read), normalize, given)
        ranges = align(read, spoken)
        words: list[SourceWord] = []
        index_of: dict[tuple[int, int], int] = {}
        phonemes: list[str] = []
        owners: list[int] = []
        for token, piece in tokens:
            symbols = [symbol for symbol in token.phonemes or "" if symbol in self.vocabulary]
            owner = -1
            if any(symbol in VISEME_OF for symbol in symbols):
                start, end = ranges[piece]
                key = (sources[start], sources[end - 1] + 1)
                owner = index_of.setdefault(key, len(words))
                if owner == len(words):
                    word = self._span(unmarked.text, originals[slice(*key)])
                    start, end = unmarked.source_span(word.start, word.end)
                    words.append(SourceWord(text[start:end], start, end))
            for symbol in symbols:
                phonemes.append(symbol)
                owners.append(-1 if symbol == " " else owner)
            if token.whitespace and phonemes:
                phonemes.append(" ")
                owners.append(-1)
        return _runs("".join(phonemes), owners, words)

    def _tokens(
        self, line: str, normalize: bool, given: Mapping[str, str]
    ) -> tuple[list[tuple[Any, int]], list[str]]:
        """Tokens, each with the index of its word, and the words as they are spoken.

        The rules are a library's and fail on some rare strings; then each word is read on its own,
        without its neighbours' help, and those that fail again are spelled.
        """
        try:
            spoken = _without_links(self._normalize(line) if normalize else line)
            return self._read(with_phonemes(spoken, given)), spoken.split()
        except Exception as error:
            logger.debug("rules failed on %d characters: %s", len(line), type(error).__name__)
        words = _without_links(line).split()
        tokens: list[tuple[Any, int]] = []
        for index, word in enumerate(words):
            spelled = " ".join(char for char in word if char.isascii() and char.isalnum())
            for reading in (word, spelled):
                try:
                    read = [token for token, _ in self._read(with_phonemes(reading, given))]
                except Exception as error:
                    logger.debug("rules failed on a word: %s", type(error).__name__)
                    continue
                if read:
                    read[-1].whitespace = " "
                tokens += [(token, index) for token in read]
                break
        return tokens, words

    def _read(self, spoken: str) -> list[tuple[Any, int]]:
        """Apply the rules: tokens with the index of the white-space piece that each is in."""
        found = []
        index = 0
        last = max(0, len(spoken.split()) - 1)
        for token in self._g2p.phonemize_tokens(self._g2p.tokenize(spoken)):
            found.append((token, min(index, last)))
            index += bool(token.whitespace)
        return found

    @staticmethod
    def _span(text: str, originals: list[SourceWord]) -> SourceWord:
        if len(originals) == 1:
            return bare(originals[0])
        start, end = originals[0].start, originals[-1].end
        return bare(SourceWord(text[start:end], start, end))


def _runs(phonemes: str, owners: list[int], words: list[SourceWord]) -> list[PhonemeRun]:
    """Cut into pieces that the model can read, between words where possible."""
    runs = []
    start = 0
    while start < len(phonemes):
        end = min(start + MAX_PHONEMES, len(phonemes))
        if end < len(phonemes):
            space = phonemes.rfind(" ", start + 1, end)
            end = space if space > start else end
        lead = len(phonemes[start:end]) - len(phonemes[start:end].lstrip(" "))
        piece = phonemes[start + lead : end].rstrip(" ")
        if any(symbol in VISEME_OF for symbol in piece):
            held = owners[start + lead : start + lead + len(piece)]
            used = sorted({owner for owner in held if owner >= 0})
            renumber = {owner: index for index, owner in enumerate(used)}
            runs.append(
                PhonemeRun(
                    piece,
                    tuple(renumber.get(owner, -1) for owner in held),
                    tuple(words[owner] for owner in used),
                )
            )
        start = end
    return runs
