"""Rules that read numbers and signs as words: the form that those of every language share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

Say: TypeAlias = Callable[[re.Match[str]], str | None]
"""The words for what a pattern found; None leaves it to the rules behind."""


class Rule(NamedTuple):
    """A pattern, tried where a number, sign or word may start, and how to say what it finds."""

    pattern: re.Pattern[str]
    say: Say


class Reading(NamedTuple):
    """The words for ``text[start:end]``."""

    start: int
    end: int
    words: str


def rule(pattern: str, say: Say, flags: int = 0) -> Rule:
    """Compile a rule; ASCII letters and digits count as word characters, Han does not."""
    return Rule(re.compile(pattern, flags | re.ASCII), say)


def alternatives(words: Sequence[str]) -> str:
    """A pattern for any of some words, the longest that fits."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_START: Final = re.compile(r"[^\s\w]|\d|(?<![A-Za-z])[A-Za-z]|[^\x00-\x7f]")
_LETTERS: Final = re.compile(r"[A-Za-z]+")


def read(rules: Sequence[Rule], text: str, start: int, end: int) -> list[Reading]:
    """Apply the first rule that fits at each place, from left to right.

    Args:
        rules: In order of preference.
        text: What is read and its surroundings: rules may look at them.
        start: Where to begin.
        end: Nothing is read beyond it.
    """
    readings: list[Reading] = []
    pos = start
    while (found := _START.search(text, pos, end)) is not None:
        pos = found.start()
        for pattern, say in rules:
            match = pattern.match(text, pos)
            if match is None or match.end() > end or match.end() == pos:
                continue
            words = say(match)
            if words is not None:
                readings.append(Reading(pos, match.end(), words))
                pos = match.end()
                break
        else:
            letters = _LETTERS.match(text, pos, end)
            pos = letters.end() if letters else pos + 1
    return readings


def before(match: re.Match[str], characters: int = 16) -> str:
    """The text in front of what a rule found."""
    start = match.start()
    return match.string[max(0, start - characters) : start]


def behind(match: re.Match[str]) -> str:
    """The text behind what a rule found, as far as it is known to belong to it."""
    return match.string[match.end() :]


ROMAN: Final = (
    r"(?=[IVXLCDM])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?![A-Za-z0-9])"
)
"""A Roman numeral that is not part of a word."""
_ROMAN_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def roman(numeral: str) -> int:
    """Give the value of a Roman numeral."""
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(
        -value if value < following else value
        for value, following in zip(values, [*values[1:], 0], strict=True)
    )


DOMAIN: Final = (
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+"
    r"(?:com|org|net|edu|gov|io|ai|dev|app|info|biz|cn|jp|uk|de|fr|eu|us|hk|tw|kr|co|me|tv|xyz"
    r"|int|mil|es|it|nl|ch|at|se|ca|au|in|ru|tech|cloud|site|top|wiki)"
    r"(?![A-Za-z0-9-])"
)
ADDRESS: Final = (
    rf"(?:[A-Za-z][A-Za-z0-9+]*://[A-Za-z0-9][\w.~:/?#@!$&*+,;=%-]*[\w/#]"
    rf"|(?:www\.)?{DOMAIN}(?::\d+)?(?:/[\w.~:/?#@!$&*+,;=%-]*[\w/]|/)?)"
)
"""A web address, with or without a scheme."""
MAIL: Final = rf"[A-Za-z0-9][\w.+-]*@{DOMAIN}"
GROUPED: Final = r"(?:\d{1,5}(?:-\d{1,7}){3,}|\d{3,4}(?:-\d{3,4}){2})(?![\d-])"
"""Digits in groups that count nothing: of a book, an account, a meeting."""
FILE: Final = (
    r"[A-Za-z][\w-]*\.(?:js|ts|py|md|json|ya?ml|toml|txt|csv|pdf|docx?|xlsx?|pptx?|html?|css|cpp"
    r"|java|go|rs|sh|exe|zip|wav|mp[34]|png|jpe?g|gif|NET)(?![A-Za-z0-9])"
)
SCHEME: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+]*://")
PIECE: Final = re.compile(r"[A-Za-z]+|\d|[^A-Za-z\d]")
"""What an address is spelled in: words, single digits, signs."""


def valid_date(month: str, day: str) -> bool:
    """Tell whether month and day can be those of a date."""
    return 1 <= int(month) <= 12 and 1 <= int(day) <= 31
