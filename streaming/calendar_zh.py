"""How Chinese reads dates and times of day, and ranges of them."""

from __future__ import annotations

import re
from typing import Final

from cosyvoice_stream.streaming.numbers_zh import cardinal, spell
from cosyvoice_stream.streaming.readings import Rule, before, rule, valid_date

DASH: Final = r"\s?(?:-|–|—|−|~|～|〜)\s?"
"""Between the ends of a range."""
SCORED: Final = re.compile(r"(?:比分|比例|比率|赢|胜|败|平|输|领先|落后|战|以)[^，。]{0,5}\Z")
"""What stands in front of the score of a game, or of a ratio."""


def _date(match: re.Match[str]) -> str | None:
    year, month, day = match["y"], match["m"], match["d"]
    if not valid_date(month, day):
        return None
    return f"{spell(year)}年{cardinal(month.lstrip('0'))}月{cardinal(day.lstrip('0'))}日"


def _year_month(match: re.Match[str]) -> str | None:
    month = int(match["m"])
    return f"{spell(match['y'])}年{cardinal(str(month))}月" if 1 <= month <= 12 else None


def _clock(hour: str, minute: str, second: str | None) -> str:
    def of(part: str) -> str:
        words = cardinal(str(int(part)))
        return "零" + words if part[0] == "0" and len(part) == 2 and int(part) else words

    words = cardinal(str(int(hour)), counting=True) + "点"
    if int(minute) or second:
        words += of(minute) + "分"
    return words + (of(second) + "秒" if second else "")


def _time(match: re.Match[str]) -> str | None:
    hour, minute, second = match["h"], match["m"], match["s"]
    meridiem = (match["ap"] or "").lower()
    if int(hour) > 24 or int(minute) > 59 or SCORED.search(before(match)):
        return None
    if not meridiem:
        return _clock(hour, minute, second)
    late = "晚上" if int(hour) % 12 >= 6 else "下午"
    return (late if meridiem == "p" else "上午") + _clock(hour, minute, second)


def _hour(match: re.Match[str]) -> str:
    late = "晚上" if int(match["h"]) % 12 >= 6 else "下午"
    part = late if match["ap"].lower() == "p" else "上午"
    return f"{part}{cardinal(match['h'], counting=True)}点"


RULES: Final[list[Rule]] = [
    rule(r"(?P<y>[12]\d{3})(?P<k>[-/.])(?P<m>\d{1,2})(?P=k)(?P<d>\d{1,2})(?![\d.])", _date),
    rule(r"(?P<y>[12]\d{3})[-/](?P<m>0[1-9]|1[0-2])(?![\d/-])", _year_month),
    rule(
        r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?!\d|:\d)"
        r"(?:\s?(?P<ap>[AaPp])(?:\.[Mm]\b\.?|[Mm]\b))?",
        _time,
    ),
    rule(r"(?P<h>1[0-2]|[1-9])\s?(?P<ap>[AaPp])(?:\.[Mm]\b\.?|[Mm]\b)", _hour),
    rule(rf"(?<=:\d\d){DASH}(?=\d{{1,2}}:\d\d)", lambda m: "到"),
    rule(rf"(?<=[年月日号點点时周]){DASH}(?=\d)", lambda m: "到"),
]
