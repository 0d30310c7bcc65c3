"""English pronunciations in IPA or X-SAMPA → ARPAbet."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from cosyvoice_stream.streaming.mark_tokens import ARPABET

_IPA: Final[Mapping[str, str]] = {
    "tʃ": "CH", "ʧ": "CH", "dʒ": "JH", "ʤ": "JH",
    "p": "P", "b": "B", "t": "T", "d": "D", "k": "K", "g": "G", "ɡ": "G", "f": "F", "v": "V",
    "θ": "TH", "ð": "DH", "s": "S", "z": "Z", "ʃ": "SH", "ʒ": "ZH", "h": "HH", "m": "M",
    "n": "N", "ŋ": "NG", "l": "L", "ɫ": "L", "ɹ": "R", "r": "R", "ɻ": "R", "j": "Y", "w": "W",
    "ʍ": "W", "ɾ": "T",
    "aɪ": "AY", "aʊ": "AW", "eɪ": "EY", "ɔɪ": "OY", "oʊ": "OW", "əʊ": "OW",
    "ɪə": "IH R", "eə": "EH R", "ɛə": "EH R", "ʊə": "UH R",
    "ɜɹ": "ER", "ɜr": "ER", "ɜ": "ER", "ɝ": "ER", "əɹ": "ER0", "ər": "ER0", "ɚ": "ER0",
    "i": "IY", "ɪ": "IH", "e": "EH", "ɛ": "EH", "æ": "AE", "a": "AA", "ɑ": "AA", "ɒ": "AA",
    "ɔ": "AO", "o": "OW", "ʊ": "UH", "u": "UW", "ʌ": "AH", "ɐ": "AH0", "ə": "AH0",
}  # fmt: skip
_IPA_PART: Final = re.compile("|".join(sorted(map(re.escape, _IPA), key=len, reverse=True)))
_STRESS: Final = {"ˈ": "1", "'": "1", "ˌ": "2", ",": "2"}
_SKIPPED: Final = frozenset("ːˑ. ‿|/-\u0361\u035c\u032f\u0330\u031a\u02b0\u0303")
_SYLLABIC: Final = frozenset("\u0329\u030d")
_X_SAMPA: Final[Mapping[str, str]] = {
    "tS": "ʧ", "dZ": "ʤ", "T": "θ", "D": "ð", "S": "ʃ", "Z": "ʒ", "N": "ŋ", "r\\": "ɹ",
    "I": "ɪ", "E": "ɛ", "{": "æ", "A": "ɑ", "Q": "ɒ", "O": "ɔ", "U": "ʊ", "V": "ʌ", "@`": "ɚ",
    "3`": "ɝ", "@r": "ɚ", "@": "ə", "3": "ɜ", "6": "ɐ", "4": "ɾ", "5": "ɫ", '"': "ˈ", "%": "ˌ",
    ":": "ː", "l=": "l\u0329", "n=": "n\u0329", "m=": "m\u0329",
}  # fmt: skip
_X_SAMPA_PART: Final = re.compile(
    "|".join(sorted(map(re.escape, _X_SAMPA), key=len, reverse=True)) + "|.", re.DOTALL
)
_MARK: Final = re.compile(r"\S+")


def ipa_to_arpabet(text: str) -> tuple[str, ...] | None:
    """Write IPA in ARPAbet: ``"təˈmeɪtoʊ"`` → ``[T] [AH0] [M] [EY1] [T] [OW0]``.

    Args:
        text: English, broad or nearly so. Without a stress mark the first vowel is stressed.

    Returns:
        Tokens, or None if there are none, or a sound that English does not have.
    """
    text = unicodedata.normalize("NFD", text.strip())
    symbols: list[str] = []
    stress = ""
    at = 0
    text = text.replace("\u0361", "").replace("\u035c", "")
    marked = any(sign in text for sign in "ˈˌ'")
    while at < len(text):
        char = text[at]
        if char in _STRESS:
            stress = _STRESS[char]
        elif char in _SYLLABIC:
            symbols[-1:] = ["AH0", *symbols[-1:]]
        elif char not in _SKIPPED:
            found = _IPA_PART.match(text, at)
            if found is None:
                return None
            for name in _IPA[found[0]].split():
                if name[0] in "AEIOU":
                    if not marked and not any(sound[0] in "AEIOU" for sound in symbols):
                        stress = "1"
                    name = name.rstrip("0") + (stress or "0")
                    stress = ""
                symbols.append(name)
            at = found.end() - 1
        at += 1
    tokens = tuple(f"[{symbol}]" for symbol in symbols)
    return tokens if tokens and ARPABET.issuperset(tokens) else None


def x_sampa_to_arpabet(text: str) -> tuple[str, ...] | None:
    """Write X-SAMPA in ARPAbet, see `ipa_to_arpabet`."""
    return ipa_to_arpabet(
        _X_SAMPA_PART.sub(lambda found: _X_SAMPA.get(found[0], found[0]), text.strip())
    )


def arpabet_tokens(text: str) -> tuple[str, ...] | None:
    """Read ARPAbet without brackets: ``"T AH0 M EY1 T OW2"``; None if a symbol is unknown."""
    tokens = tuple(f"[{found[0].upper()}]" for found in _MARK.finditer(text))
    return tokens if tokens and ARPABET.issuperset(tokens) else None
