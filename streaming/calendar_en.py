"""How English reads dates, decades and times of day."""

from __future__ import annotations

import re
from typing import Final

from cosyvoice_stream.streaming import units_en
from cosyvoice_stream.streaming.numbers_en import NUMBER, cardinal, number, ordinal, year
from cosyvoice_stream.streaming.readings import Rule, alternatives, before, behind, rule, valid_date

_MONTH = alternatives(list(units_en.MONTH_NAMES))


def _with_year(words: str, digits: str | None) -> str:
    return f"{words}, {year(digits)}" if digits else words


def _numeric_date(match: re.Match[str]) -> str | None:
    month, day = match["m"], match["d"]
    if int(month) > 12 and "k" in match.groupdict():
        month, day = day, month
    if not valid_date(month, day):
        return None
    return _with_year(_month_and_day(units_en.MONTHS[int(month) - 1], day), match["y"])


def _month_and_day(month: str, day: str) -> str:
    return f"{month} {ordinal(str(int(day)))}"


def _month_day(match: re.Match[str]) -> str | None:
    """Read the day, and the year, behind the name of a month."""
    day = int(match["d"])
    if not 1 <= day <= 31:
        return None
    month = units_en.MONTH_NAMES[match["m"]]
    second = match["d2"]
    words = _month_and_day(month, match["d"])
    if second:
        words += f" to {ordinal(str(int(second)))}"
    return _with_year(words, match["y"])


def _day_month(match: re.Match[str]) -> str | None:
    if not 1 <= int(match["d"]) <= 31:
        return None
    article = "" if before(match).endswith("the ") else "the "
    month = units_en.MONTH_NAMES[match["m"]]
    return _with_year(f"{article}{ordinal(str(int(match['d'])))} of {month}", match["y"])


def _time(match: re.Match[str]) -> str | None:
    hour, minute, second = int(match["h"]), int(match["m"]), match["s"]
    if minute > 59 or (hour > 24 and len(match["h"]) < 2):
        return None
    words = cardinal(str(hour))
    if minute:
        words += (" oh " if minute < 10 else " ") + cardinal(str(minute))
    elif not match["ap"] and not second:
        words += " o'clock" if hour <= 12 else " hundred"
    if second:
        words += f" and {cardinal(str(int(second)))} seconds"
    return words + _meridiem(match)


def _hour(match: re.Match[str]) -> str:
    return cardinal(match["h"]) + _meridiem(match)


def _meridiem(match: re.Match[str]) -> str:
    """AM or PM, with the full stop that it shares with its sentence."""
    if not match["ap"]:
        return ""
    tail = behind(match)
    ends = match[0].endswith(".") and (not tail.strip() or re.match(r"\s[A-Z]", tail))
    return f" {match['ap'].upper()}M" + ("." if ends else "")


def _decade(match: re.Match[str]) -> str | None:
    digits = match["n"]
    told = re.search(r"(?:the|his|her|their|my|our|early|late|mid)[ -]\Z", before(match).lower())
    if len(digits) == 2 and match[0][0] != "'" and not told:
        return None
    words = year(digits) if len(digits) == 4 else cardinal(digits)
    return (words[:-1] + "ies") if words.endswith("y") else words + "s"


def _month(match: re.Match[str]) -> str:
    return units_en.MONTH_NAMES[match["m"]]


RULES: Final[list[Rule]] = [
    rule(r"(?<=:\d\d)\s?[-–—~]\s?(?=\d{1,2}:\d\d)", lambda m: " to "),
    # Dates
    rule(r"(?P<y>[12]\d{3})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?![\d-])", _numeric_date),
    rule(r"(?P<m>\d{1,2})(?P<k>/)(?P<d>\d{1,2})/(?P<y>[12]\d{3})(?![\d/])", _numeric_date),
    rule(
        rf"(?P<m>{_MONTH})\.?\s(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\s?[-–]\s?(?P<d2>\d{{1,2}}))?"
        rf"(?![\d:%A-Za-z]|\.\d)(?:,?\s(?P<y>[12]\d{{3}})(?!\d))?",
        _month_day,
    ),
    rule(
        rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<m>{_MONTH})(?![A-Za-z])\.?"
        rf"(?:,?\s(?P<y>[12]\d{{3}})(?!\d))?",
        _day_month,
    ),
    rule(r"(?P<m>Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.(?=\s\d)", _month),
    # Times
    rule(
        r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?!\d|:\d)"
        r"(?:\s?(?P<ap>[AaPp])(?:\.[Mm](?![A-Za-z])\.?|[Mm](?![A-Za-z])))?",
        _time,
    ),
    rule(r"(?P<h>1[0-2]|[1-9])\s?(?P<ap>[AaPp])(?:\.[Mm](?![A-Za-z])\.?|[Mm](?![A-Za-z]))", _hour),
    rule(rf"{NUMBER}:{NUMBER}(?!:?\d)", lambda m: " to ".join(map(number, m[0].split(":")))),
    rule(r"'?(?P<n>[12]\d\d0|[2-9]0)'?s(?![A-Za-z])", _decade),
]
