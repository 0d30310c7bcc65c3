"""Numbers in English words."""

from __future__ import annotations

from functools import partial
from typing import Final

from cosyvoice_stream.streaming import number_words

cardinal = partial(number_words.words, language="en")
ordinal = partial(number_words.words, language="en", form="ordinal")
spell = partial(number_words.spelled, language="en")

INT: Final = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
NUMBER: Final = rf"(?:(?:{INT})(?:\.\d+)?)"
"""Without a sign."""


def number(text: str) -> str:
    """Read a number with or without sign, thousands commas and decimals."""
    sign = {"-": "minus ", "−": "minus ", "+": "plus "}.get(text[:1], "")
    whole, point, decimals = text.lstrip("+-−").replace(",", "").partition(".")
    words = cardinal(whole or "0")
    return sign + words + (f" point {spell(decimals)}" if point and decimals else "")


def year(digits: str) -> str:
    """Read the number of a year."""
    return number_words.words(digits, "en", "year").replace("oh-", "oh ")


def is_year(digits: str) -> bool:
    """Tell whether four digits may be a year."""
    return len(digits) == 4 and "1000" <= digits <= "2099"
