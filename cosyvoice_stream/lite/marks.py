"""Marks within a clause for the embedded engine: ARPAbet in its own phonemes, no sounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.speech_marks import Kind, parse

_PHONEMES: Final = {
    "AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "W", "AY": "I", "B": "b", "CH": "ʧ",
    "D": "d", "DH": "ð", "EH": "ɛ", "ER": "ɜɹ", "EY": "A", "F": "f", "G": "ɡ", "HH": "h",
    "IH": "ɪ", "IY": "i", "JH": "ʤ", "K": "k", "L": "l", "M": "m", "N": "n", "NG": "ŋ",
    "OW": "O", "OY": "Y", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ",
    "UH": "ʊ", "UW": "u", "V": "v", "W": "w", "Y": "j", "Z": "z", "ZH": "ʒ",
}  # fmt: skip
_UNSTRESSED: Final = {"AH0": "ə", "ER0": "əɹ"}
_STRESS: Final = {"1": "ˈ", "2": "ˌ"}
_STAND_IN: Final = re.compile("Qzqx[a-z]{2}qz")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def from_arpabet(symbols: Sequence[str]) -> str:
    """Write ARPAbet in the phonemes of the acoustic model.

    Args:
        symbols: Such as ``("[M]", "[AY1]")``. Without any stress the first vowel has it.
    """
    names = [symbol[1:-1] for symbol in symbols]
    stressed = any(name[-1].isdigit() for name in names)
    written = []
    for name in names:
        base = name.rstrip("012")
        mark = _STRESS.get(name[-1], "")
        if not stressed and base[0] in "AEIOU":
            mark, stressed = _STRESS["1"], True
        written.append(mark + (_UNSTRESSED.get(name) or _PHONEMES[base]))
    return "".join(written)


def without_marks(text: str) -> tuple[MappedText, dict[str, str]]:
    """Take the marks out of a clause.

    Args:
        text: Holds no pinyin.

    Returns:
        The clause without sounds, in which a word of its own stands for each run of phonemes, and
        the phonemes of each of these words.
    """
    parts: list[MappedText] = []
    phonemes: dict[str, str] = {}
    for piece in parse(text).pieces:
        if piece.kind is Kind.TEXT:
            parts.append(piece.source)
        elif piece.kind is Kind.PHONEMES:
            high, low = divmod(len(phonemes), len(_LETTERS))
            word = f"Qzqx{_LETTERS[high % len(_LETTERS)]}{_LETTERS[low]}qz"
            phonemes[word] = from_arpabet(piece.symbols)
            start, end = piece.source.source_span(0, len(piece.source))
            parts += [
                _gap(text[max(0, start - 1) : start], start),
                MappedText.standing_for(word, start, end),
                _gap(text[end : end + 1], end),
            ]
    return MappedText.join(parts), phonemes


def _gap(neighbour: str, at: int) -> MappedText:
    """A space next to a letter or another mark; punctuation clings to the word."""
    apart = neighbour.isalnum() or neighbour in ("[", "]")
    return MappedText.standing_for(" " if apart else "", at, at)


def with_phonemes(line: str, phonemes: Mapping[str, str]) -> str:
    """Write the words of `without_marks` in the rules' notation for given phonemes."""
    if not phonemes:
        return line
    return _STAND_IN.sub(
        lambda found: f"[word](/{phonemes[found[0]]}/)" if found[0] in phonemes else found[0],
        line,
    )
