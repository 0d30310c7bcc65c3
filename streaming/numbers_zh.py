"""Numbers in Chinese characters."""

from __future__ import annotations

from typing import Final

_DIGITS: Final = "零一二三四五六七八九"
_PLACES: Final = ("", "十", "百", "千")
_GROUPS: Final = ("", "万", "亿", "万亿")
LONGEST: Final = 16
"""Digits of the longest number that is not read digit by digit."""


def spell(digits: str, *, one: str = "一") -> str:
    """Read digit by digit.

    Args:
        digits: Other characters are kept.
        one: How 1 is said: ``"幺"`` in Mandarin telephone and room numbers.
    """
    return "".join(
        (one if char == "1" else _DIGITS[int(char)]) if "0" <= char <= "9" else char
        for char in digits
    )


def _group(digits: str) -> str:
    """Read up to four digits, without leading zeros."""
    words = ""
    skipped = False
    for place, char in zip(range(len(digits) - 1, -1, -1), digits, strict=True):
        if char == "0":
            skipped = True
            continue
        if skipped and words:
            words += "零"
        skipped = False
        words += _DIGITS[int(char)] + _PLACES[place]
    return words


def cardinal(digits: str, *, counting: bool = False) -> str:
    """Read a whole number.

    Args:
        digits: More than `LONGEST` of them are read one by one, as are those behind a zero.
        counting: Say 两 instead of 二, as before a measure word.
    """
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return spell(digits)
    if not digits.strip("0"):
        return "零"
    groups = []
    while digits:
        groups.append(digits[-4:])
        digits = digits[:-4]
    words = ""
    gap = False
    for index in range(len(groups) - 1, -1, -1):
        group = groups[index]
        plain = group.lstrip("0")
        if not plain:
            gap = True
            continue
        if words and (gap or len(plain) < 4):
            words += "零"
        gap = False
        words += _group(plain) + _GROUPS[index]
    if words.startswith("一十"):
        words = words[1:]
    if words == "二" and counting:
        return "两"
    if len(words) > 1 and words[0] == "二" and words[1] in "百千万亿":
        words = "两" + words[1:]
    return words


def number(text: str, *, counting: bool = False) -> str:
    """Read a number with or without sign, thousands commas and decimals.

    Args:
        text: For example ``"-1,234.50"``.
        counting: See `cardinal`; decimals have no 两.
    """
    sign = {"-": "负", "−": "负", "+": "正"}.get(text[:1], "")
    whole, point, decimals = text.lstrip("+-−").replace(",", "").partition(".")
    words = cardinal(whole or "0", counting=counting and not point and not sign)
    return sign + words + ("点" + spell(decimals) if point and decimals else "")
