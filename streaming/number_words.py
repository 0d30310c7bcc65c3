"""Number words of languages in which `num2words` knows them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from num2words import num2words

from cosyvoice_stream.streaming.word_lists import word_set

LANGUAGES: Final = word_set(
    "en de fr es it pt nl pl ru uk sv da no fi hu ro tr id vi ko he ar cs lt lv sk sl sr th"
)
LONGEST: Final = 15
"""Digits of the longest number that is not read digit by digit."""


@lru_cache(maxsize=4096)
def words(digits: str, language: str, form: str = "cardinal") -> str:
    """Read a whole number.

    Args:
        digits: Longer ones, and those behind a zero, are read digit by digit.
        language: One of `LANGUAGES`.
        form: ``"cardinal"``, ``"ordinal"`` or ``"year"``.
    """
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return " ".join(words(digit, language) for digit in digits)
    try:
        said = num2words(int(digits), lang=language, to=form)
    except (NotImplementedError, OverflowError, KeyError, IndexError, TypeError, ValueError):
        # Some languages lack years, ordinals, or large numbers.
        if form != "cardinal":
            return words(digits, language)
        return " ".join(words(digit, language) for digit in digits) if digits[1:] else digits
    return str(said).replace(",", "").strip()


def spelled(digits: str, language: str) -> str:
    """Read digit by digit."""
    return " ".join(words(digit, language) for digit in digits if digit.isdigit())
