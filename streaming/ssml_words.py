"""Other words for the content of SSML's ``say-as`` and ``phoneme``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cosyvoice_stream.streaming import phonetics, pinyin

_READ_AS_WRITTEN: Final = frozenset(
    ("cardinal", "number", "fraction", "unit", "time", "currency", "address", "name", "net")
)
"""What the normaliser recognises by itself."""
_SPELLED: Final = frozenset(("characters", "spell-out", "verbatim", "digits", "letters"))
_PHONE_GROUP: Final = re.compile(r"[0-9]+|\+")
_DATE_PARTS: Final = re.compile(r"[0-9]{1,4}")
_ORDINAL: Final = re.compile(r"[0-9]{1,15}")
_TEENS: Final = range(11, 14)
_SUFFIXES: Final = {1: "st", 2: "nd", 3: "rd"}
_ARPABET_NAMES: Final = frozenset(("cmu-arpabet", "x-cmu-arpabet", "arpabet", "x-arpabet"))
_PINYIN_NAMES: Final = frozenset(("pinyin", "x-pinyin", "x-amazon-pinyin", "py"))


def say_as(text: str, attributes: Mapping[str, str], language: str | None) -> str | None:
    """Rewrite the content of ``say-as`` so that a normaliser reads it as it is meant.

    Args:
        text: The content.
        attributes: Of the element: ``interpret-as`` and ``format``.
        language: BCP 47 tag, if one is known.

    Returns:
        Other words, the same, or None for an interpretation that is not known.
    """
    kind = attributes.get("interpret-as", "").strip().lower()
    content = text.strip()
    if kind in _SPELLED:
        return _spelled(content)
    if kind == "telephone":
        groups = [" ".join(group) for group in _PHONE_GROUP.findall(content)]
        return ", ".join(groups).replace("+, ", "+ ").replace("+", "plus") if groups else text
    if kind == "ordinal":
        return _ordinal(content, language) if _ORDINAL.fullmatch(content) else text
    if kind == "date":
        return _date(content, attributes.get("format", "").lower()) or text
    return text if kind in _READ_AS_WRITTEN else None


def _spelled(content: str) -> str:
    """Each character for itself; signs between them are pauses."""
    if any(char > "\u2e7f" for char in content):
        return " ".join(content)
    return " ".join(char.upper() if char.isalnum() else "," for char in content).replace(" ,", ",")


def _ordinal(content: str, language: str | None) -> str:
    if language is not None and language.split("-")[0].lower() in ("zh", "yue", "ja"):
        return f"第{content}"
    number = int(content)
    suffix = "th" if number % 100 in _TEENS else _SUFFIXES.get(number % 10, "th")
    return content + suffix


def _date(content: str, order: str) -> str | None:
    """A date in the order of its ``format``, as ``2026-12-03``; None if it is not all there."""
    parts = _DATE_PARTS.findall(content)
    if not order or len(parts) != len(order) or set(order) != set("ymd"):
        return None
    by_name = dict(zip(order, parts, strict=True))
    return f"{int(by_name['y']):04d}-{int(by_name['m']):02d}-{int(by_name['d']):02d}"


def phonemes_of(alphabet: str | None, phonemes: str | None) -> str | None:
    """Marks for a pronunciation.

    Args:
        alphabet: ``ipa`` (also without one), ``x-sampa``, ``cmu-arpabet`` or ``pinyin``.
        phonemes: In that alphabet.

    Returns:
        Marks of `speech_marks`; None if alphabet or phonemes are not understood.
    """
    name = (alphabet or "ipa").strip().lower()
    if not phonemes:
        return None
    tokens: tuple[str, ...] | None = None
    if name == "ipa":
        tokens = phonetics.ipa_to_arpabet(phonemes)
    elif name == "x-sampa":
        tokens = phonetics.x_sampa_to_arpabet(phonemes)
    elif name in _ARPABET_NAMES:
        tokens = phonetics.arpabet_tokens(phonemes)
    elif name in _PINYIN_NAMES:
        syllables = [pinyin.to_tokens(syllable) for syllable in phonemes.split()]
        if all(syllables):
            tokens = tuple(token for syllable in syllables for token in syllable or ())
    return "".join(tokens) if tokens else None
