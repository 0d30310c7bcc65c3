"""Clause → phonemes, each with the word of the caller that it belongs to and its mouth shape."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from cosyvoice_stream.types import Viseme

MAX_WORD_CHARS: Final = 40
"""Longer runs of letters are no words; they are read in pieces."""
MAX_PHONEMES: Final = 400
"""What the acoustic model reads at once."""
BOUNDARY_ID: Final = 0
"""Stands before the first and after the last phoneme."""

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
    Viseme.PP: ("pbm", 0.0),
    Viseme.FF: ("fv", 0.15),
    Viseme.TH: ("θð", 0.2),
    Viseme.DD: ("tdTɾ", 0.2),
    Viseme.KK: ("kɡŋhx", 0.25),
    Viseme.CH: ("ʧʤʃʒ", 0.25),
    Viseme.SS: ("sz", 0.15),
    Viseme.NN: ("nl", 0.2),
    Viseme.RR: ("ɹɜɚ", 0.3),
    Viseme.AA: ("ɑaæʌɐAIWɒ", 0.9),
    Viseme.E: ("ɛeəᵊ", 0.55),
    Viseme.IH: ("ɪijᵻY", 0.4),
    Viseme.OH: ("ɔoOQ", 0.65),
    Viseme.OU: ("ʊuw", 0.35),
}
VISEME_OF: Final = {
    phoneme: (viseme, mouth_open)
    for viseme, (phonemes, mouth_open) in _SHAPES.items()
    for phoneme in phonemes
}
STRESS_MARKS: Final = frozenset("ˈˌ")
LENGTH_MARKS: Final = frozenset("ːʰʲ")
_TIE_ALPHABET: Final = frozenset("ʣʥʦʨ")


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


def align(originals: list[str], spoken: list[str]) -> list[tuple[int, int]]:
    """Map each spoken word to a range of original words.

    Equal words map to each other; where the normaliser rewrote some, each of its words maps to all
    of the originals that it replaced.
    """
    ranges = [(0, 0)] * len(spoken)
    matcher = SequenceMatcher(None, originals, spoken, autojunk=False)
    for tag, i0, i1, j0, j1 in matcher.get_opcodes():
        for j in range(j0, j1):
            if tag == "equal":
                ranges[j] = (i0 + j - j0, i0 + j - j0 + 1)
            elif tag == "replace":
                ranges[j] = (i0, i1)
            else:  # inserted words belong to their neighbour
                neighbour = max(0, i0 - 1)
                ranges[j] = (neighbour, min(neighbour + 1, len(originals)))
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
            text: One clause.
            normalize: Read numbers, dates, units and abbreviations as words.

        Returns:
            Runs that the model can read, in order; none if the text has nothing to say.
        """
        originals = source_words(text)
        line = " ".join(spell_greek(word.text) for word in originals)
        spoken = self._normalize(line) if normalize else line
        pieces = spoken.split()
        ranges = align([word.text for word in originals], pieces)
        words: list[SourceWord] = []
        index_of: dict[tuple[int, int], int] = {}
        phonemes: list[str] = []
        owners: list[int] = []
        for token, piece in self._tokens(spoken, pieces):
            first, last = ranges[piece] if ranges else (0, 0)
            owner = -1
            if last > first and any(c.isalnum() for c in token.text):
                owner = index_of.setdefault((first, last), len(words))
                if owner == len(words):
                    words.append(self._span(text, originals[first:last]))
            for symbol in token.phonemes or "":
                if symbol in self.vocabulary:
                    phonemes.append(symbol)
                    owners.append(-1 if symbol == " " else owner)
            if token.whitespace and phonemes:
                phonemes.append(" ")
                owners.append(-1)
        return _runs("".join(phonemes), owners, words)

    def _tokens(self, spoken: str, pieces: list[str]) -> list[tuple[Any, int]]:
        """Tokens with the index of the white-space piece that each one starts in."""
        tokens = self._g2p.phonemize_tokens(self._g2p.tokenize(spoken))
        ends: list[int] = []
        position = 0
        for piece in pieces:
            position += len(piece)
            ends.append(position)
        found = []
        seen = piece_index = 0
        for token in tokens:
            while piece_index < len(ends) - 1 and seen >= ends[piece_index]:
                piece_index += 1
            found.append((token, piece_index))
            seen += len("".join(token.text.split()))
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
        if any(symbol in VISEME_OF or symbol in _TIE_ALPHABET for symbol in piece):
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
