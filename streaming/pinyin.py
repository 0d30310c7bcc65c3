"""Mandarin syllables in the three ways of writing them: ``chóng``, ``chong2``, ``[ch][óng]``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from cosyvoice_stream.streaming.mark_tokens import PINYIN_FINALS, PINYIN_INITIALS

NEUTRAL: Final = 5
"""The tone of a syllable that has none."""
_ACCENTS: Final = {"\u0304": 1, "\u0301": 2, "\u030c": 3, "\u0300": 4}
_ACCENT_OF: Final = {tone: accent for accent, tone in _ACCENTS.items()}
_INITIALS: Final = sorted((token[1:-1] for token in PINYIN_INITIALS), key=len, reverse=True)
_SYLLABLE: Final = re.compile(r"([a-zü]{1,7})([0-5])?")
_DIERESIS: Final = "\u0308"


def numbered(syllable: str) -> str | None:
    """Write a syllable with its tone as a digit: ``"chóng"`` → ``"chong2"``.

    Args:
        syllable: With a tone mark, with a digit 1 to 5, or with neither (neutral tone); ``ü`` may
            be written as ``v`` or ``u:``.

    Returns:
        The syllable with ``v`` for ``ü``, or None if it does not look like one.
    """
    letters: list[str] = []
    tone = 0
    plain = syllable.strip().lower().replace("u:", "v")
    for char in unicodedata.normalize("NFD", plain):
        if char in _ACCENTS:
            if tone:
                return None
            tone = _ACCENTS[char]
        elif char == _DIERESIS and letters and letters[-1] == "u":
            letters[-1] = "v"
        else:
            letters.append(char)
    found = _SYLLABLE.fullmatch("".join(letters))
    if found is None or (tone and found[2]):
        return None
    return f"{found[1]}{tone or int(found[2] or NEUTRAL) or NEUTRAL}"


def accented(syllable: str) -> str | None:
    """Write a syllable with its tone as a mark: ``"chong2"`` → ``"chóng"``; None if it is none."""
    plain = numbered(syllable)
    if plain is None:
        return None
    letters, tone = plain[:-1], int(plain[-1])
    letters = letters.replace("v", "u" + _DIERESIS)
    if tone == NEUTRAL:
        return unicodedata.normalize("NFC", letters)
    at = _marked_vowel(letters)
    if at is None:
        return None
    marked = letters[:at] + _ACCENT_OF[tone] + letters[at:]
    return unicodedata.normalize("NFC", marked)


def _marked_vowel(letters: str) -> int | None:
    """Index after the letter that carries the tone mark, its dieresis included."""
    for vowels in ("a", "e", "ou"):
        if (at := letters.find(vowels)) >= 0:
            return at + 1
    for at in range(len(letters) - 1, -1, -1):
        if letters[at] in "aeiou":
            return at + 1 + (letters[at + 1 : at + 2] == _DIERESIS)
    return None


def to_tokens(syllable: str) -> tuple[str, ...] | None:
    """Write a syllable in the tokens of CosyVoice 3: ``"chong2"`` → ``("[ch]", "[óng]")``.

    Args:
        syllable: As for `numbered`; ``r`` behind it (``"huar1"``) is the er-ending.

    Returns:
        An initial and a final, a final alone, or either and ``"[r]"``; None if this is no syllable
        or the model has no tokens for it.
    """
    plain = numbered(syllable)
    if plain is None:
        return None
    letters, tone = plain[:-1], plain[-1]
    whole = _split(letters, tone)
    if whole is None and letters.endswith("r"):
        whole = _split(letters[:-1], tone)
        return None if whole is None else (*whole, "[r]")
    return whole


def _split(letters: str, tone: str) -> tuple[str, ...] | None:
    initial = next((start for start in _INITIALS if letters.startswith(start)), "")
    rest = letters[len(initial) :]
    if initial in ("j", "q", "x", "y"):
        rest = rest.replace("v", "u")
    marked = accented(rest + tone)
    if marked is None:
        return None
    for final in (marked, marked.replace("ü", "v")):
        if f"[{final}]" in PINYIN_FINALS:
            return (f"[{initial}]", f"[{final}]") if initial else (f"[{final}]",)
    return None


def from_tokens(tokens: Sequence[str]) -> str | None:
    """Read the tokens of one syllable: ``("[ch]", "[óng]")`` → ``"chong2"``; None if it is none."""
    ending = ""
    rest = list(tokens)
    if len(rest) > 1 and rest[-1] == "[r]":
        ending = rest.pop()[1:-1]
    if not 1 <= len(rest) <= 2 or rest[-1] not in PINYIN_FINALS:
        return None
    if len(rest) == 2 and rest[0] not in PINYIN_INITIALS:
        return None
    plain = numbered("".join(token[1:-1] for token in rest))
    return None if plain is None else f"{plain[:-1]}{ending}{plain[-1]}"


def syllables(tokens: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Cut a run of tokens into syllables; None if some token is left over."""
    found: list[tuple[str, ...]] = []
    at = 0
    while at < len(tokens):
        length = 2 if tokens[at] in PINYIN_INITIALS else 1
        parts = tuple(tokens[at : at + length])
        if parts[-1] in PINYIN_FINALS:
            found.append(parts)
        elif parts[0] == "[r]" and found and found[-1][-1] != "[r]":
            found[-1] += ("[r]",)
            length = 1
        else:
            return None
        at += length
    return found
