"""How further languages read numbers: their number words come from a library."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cosyvoice_stream.streaming import number_words
from cosyvoice_stream.streaming.readings import (
    ADDRESS,
    MAIL,
    PIECE,
    SCHEME,
    Reading,
    Rule,
    read,
    rule,
)


@dataclass(frozen=True)
class _Words:
    """What a language calls signs."""

    point: str
    """The sign between whole and decimals: its character and its name."""
    percent: str = ""
    to: str = ""
    minus: str = ""
    hour: str = ""
    """Between hours and minutes."""
    dot: str = ""
    at: str = ""
    euro: str = ""
    dollar: str = ""
    pound: str = ""
    degree: str = ""
    power: str = ""
    """In 10^6."""


_TABLE: Final[dict[str, _Words]] = {
    "de": _Words(
        "Komma",
        "Prozent",
        "bis",
        "minus",
        "Uhr",
        "Punkt",
        "ät",
        "Euro",
        "Dollar",
        "Pfund",
        "Grad",
        "hoch",
    ),
    "fr": _Words(
        "virgule",
        "pour cent",
        "à",
        "moins",
        "heures",
        "point",
        "arobase",
        "euros",
        "dollars",
        "livres",
        "degrés",
        "puissance",
    ),
    "es": _Words(
        "coma",
        "por ciento",
        "a",
        "menos",
        "y",
        "punto",
        "arroba",
        "euros",
        "dólares",
        "libras",
        "grados",
        "elevado a",
    ),
    "it": _Words(
        "virgola",
        "per cento",
        "a",
        "meno",
        "e",
        "punto",
        "chiocciola",
        "euro",
        "dollari",
        "sterline",
        "gradi",
        "alla",
    ),
    "pt": _Words(
        "vírgula",
        "por cento",
        "a",
        "menos",
        "e",
        "ponto",
        "arroba",
        "euros",
        "dólares",
        "libras",
        "graus",
        "elevado a",
    ),
    "nl": _Words(
        "komma",
        "procent",
        "tot",
        "min",
        "uur",
        "punt",
        "at",
        "euro",
        "dollar",
        "pond",
        "graden",
        "tot de macht",
    ),
    "ru": _Words(
        "", "процентов", "до", "минус", "", "точка", "собака", "евро", "долларов", "фунтов"
    ),
    "pl": _Words(
        "przecinek", "procent", "do", "minus", "", "kropka", "małpa", "euro", "dolarów", "funtów"
    ),
    "uk": _Words(
        "кома", "відсотків", "до", "мінус", "", "крапка", "равлик", "євро", "доларів", "фунтів"
    ),
    "sv": _Words(
        "komma", "procent", "till", "minus", "", "punkt", "snabel-a", "euro", "dollar", "pund"
    ),
    "tr": _Words("virgül", "yüzde", "ile", "eksi", "", "nokta", "et", "avro", "dolar", "sterlin"),
    "ko": _Words(
        "점", "퍼센트", "에서", "마이너스", "시", "점", "골뱅이", "유로", "달러", "파운드"
    ),
}
_INT = r"\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+(?![\d,.]\d)|\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+(?=,)|\d+"
_NUM = rf"(?:(?:{_INT})(?:[.,]\d+)?)"
_GERMAN_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)


def supports(language: str) -> bool:
    """Tell whether there are number words of a language."""
    return language in number_words.LANGUAGES


@lru_cache(maxsize=64)
def reader(language: str) -> Callable[[str, int, int], Sequence[Reading]]:
    """Make the reader of a language that `supports` knows; see `readings.read`."""
    rules = _rules(language)

    def read_other(text: str, start: int, end: int) -> Sequence[Reading]:
        return read(rules, text, start, end)

    return read_other


def _rules(language: str) -> list[Rule]:
    names = _TABLE.get(language, _Words(""))

    def whole(digits: str) -> str:
        return number_words.words(digits, language)

    def number(text: str) -> str:
        sign = f"{names.minus} " if text[0] in "-−" and names.minus else ""
        groups = re.sub(r"[\u00a0\u202f' ]|\.(?=\d{3}(?!\d))", "", text.lstrip("-−+"))
        first, mark, decimals = groups.partition("," if "," in groups else ".")
        if not mark:
            return sign + whole(first)
        point = names.point or ("," if mark == "," else ".")
        said = number_words.spelled(decimals, language)
        if language in ("fr", "es", "it", "pt") and decimals[0] != "0" and len(decimals) < 3:
            said = whole(decimals)
        return f"{sign}{whole(first)} {point} {said}"

    def spans(match: re.Match[str], name: str) -> str:
        words = number(match["a"])
        if match["b"]:
            words += f" {names.to} {number(match['b'])}"
        return f"{name} {words}" if language == "tr" else f"{words} {name}"

    def clock(match: re.Match[str]) -> str | None:
        hour, minute = int(match["h"]), int(match["m"])
        if hour > 24 or minute > 59:
            return None
        parts = [whole(str(hour)), names.hour]
        if language == "de" and hour == 1:
            parts[0] = "ein"
        if minute:
            parts.append(whole(str(minute)))
        elif language in ("es", "it", "pt"):
            parts.pop()
        return " ".join(filter(None, parts))

    def address(match: re.Match[str]) -> str:
        signs = {".": names.dot or ".", "@": names.at or "@"}
        pieces = PIECE.findall(SCHEME.sub("", match[0]).rstrip("/"))
        return " ".join(whole(p) if p.isdigit() else signs.get(p, p) for p in pieces)

    def ordinal(match: re.Match[str]) -> str:
        said = number_words.words(match["n"], language, "ordinal")
        return (
            said + "r"
            if re.search(r"(?:^|[.!?]\s*)\Z", match.string[: match.start()])
            else said + "n"
        )

    rules = [rule(MAIL, address), rule(ADDRESS, address)]
    if language == "de":
        rules.append(rule(rf"(?P<n>[0-3]?\d)\.(?=\s?(?:{_GERMAN_MONTHS}))", ordinal))
    rules.append(rule(r"(?P<h>\d{1,2})[:h](?P<m>\d{2})(?!\d|:)(?:\s?Uhr|\s?h\b)?", clock))
    dash = r"(?:\s?[-–—]\s?(?P<b>" + _NUM + "))?"
    signs = [("%", names.percent), ("€|EUR", names.euro), (r"\$|USD", names.dollar)]
    signs += [("£|GBP", names.pound), ("°C?|℃", names.degree)]
    for sign, name in signs:
        if name:
            rules.append(
                rule(rf"(?P<a>(?<!\w)[-−]?{_NUM}){dash}\s?(?:{sign})", _spans(spans, name))
            )
    for sign, name in signs[1:4]:
        if name:
            rules.append(rule(rf"(?:{sign})\s?(?P<a>{_NUM}){dash}", _spans(spans, name)))
    if names.power:
        rules.append(
            rule(
                r"(?P<a>\d+)\^(?P<e>\d+)",
                lambda m: f"{whole(m['a'])} {names.power} {whole(m['e'])}",
            )
        )
    if names.to:
        rules.append(
            rule(
                rf"(?P<a>{_NUM})\s?[-–—]\s?(?P<b>{_NUM})(?![\d-])",
                lambda m: f"{number(m['a'])} {names.to} {number(m['b'])}",
            )
        )
    rules.append(
        rule(
            r"(?:v\.?)?\d+(?:\.\d+){2,}",
            lambda m: f" {names.dot or '.'} ".join(map(whole, m[0].lstrip("v.").split("."))),
        )
    )
    rules.append(rule(r"[A-Za-z]+[-_]?\d+[A-Za-z]*", lambda m: _code(m[0], whole)))
    rules.append(rule(rf"(?:(?<![\w)])[-−])?{_NUM}", lambda m: number(m[0])))
    return rules


def _spans(spans: Callable[[re.Match[str], str], str], name: str) -> Callable[[re.Match[str]], str]:
    return lambda match: spans(match, name)


def _code(text: str, whole: Callable[[str], str]) -> str:
    pieces = re.findall(r"[A-Za-z]+|\d+", text)
    return " ".join(whole(piece) if piece.isdigit() else piece for piece in pieces)
