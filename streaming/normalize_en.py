"""How English reads numbers, signs, codes and abbreviations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cosyvoice_stream.streaming import calendar_en, units_en
from cosyvoice_stream.streaming.numbers_en import (
    INT,
    NUMBER,
    cardinal,
    is_year,
    number,
    ordinal,
    spell,
    year,
)
from cosyvoice_stream.streaming.readings import (
    ADDRESS,
    FILE,
    GROUPED,
    MAIL,
    PIECE,
    ROMAN,
    SCHEME,
    Reading,
    Rule,
    alternatives,
    before,
    behind,
    read,
    roman,
    rule,
)

_SIGNED = rf"(?:(?<![\w)])[-−+])?{NUMBER}"
_DASH = r"\s?(?:-|–|—|~|～)\s?"
_SCALES: Final = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
}
_SCALE = r"(?:hundred|thousand|million|billion|trillion|mn|bn|[kKmMbB])(?![A-Za-z])"
_END = r"(?![A-Za-z0-9])"


_MONEY = alternatives(list(units_en.CURRENCIES))
_UNIT = alternatives(list(units_en.UNITS))
_YEAR_BEFORE: Final = re.compile(
    r"(?:\b(?:in|since|from|until|till|by|of|year|early|late|mid|circa|during|before|after|between"
    r"|spring|summer|autumn|fall|winter|and|to|through|the)|"
    + "|".join(units_en.MONTHS)
    + r"),?\s\Z",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(
    r"\b(?:code|zip|pin|password|passcode|account|id|extension|ext)(?: number)?(?: is|:|#)?\s\Z",
    re.IGNORECASE,
)
_SIGN_NAMES: Final = {
    ".": "dot",
    "@": "at",
    "/": "slash",
    "_": "underscore",
    "-": "dash",
    "+": "plus",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "~": "tilde",
}
_OPERATORS: Final = {
    "+": "plus",
    "-": "minus",
    "−": "minus",
    "×": "times",
    "*": "times",
    "x": "times",
    "X": "times",
    "÷": "divided by",
    "=": "equals",
    "≈": "is about",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
}
_FRACTIONS: Final = {"2": "half", "4": "quarter"}
_VULGAR: Final = {"½": ("1", "2"), "⅓": ("1", "3"), "⅔": ("2", "3"), "¼": ("1", "4")} | {
    "¾": ("3", "4"),
    "⅕": ("1", "5"),
}
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_CIRCLED: Final = "①②③④⑤⑥⑦⑧⑨⑩"


def _address(match: re.Match[str]) -> str:
    pieces = PIECE.findall(SCHEME.sub("", match[0]).rstrip("/"))
    return " ".join(
        cardinal(piece) if piece.isdigit() else _SIGN_NAMES.get(piece, piece) for piece in pieces
    )


def _phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\+?\d+", match[0])
    return ", ".join(("plus " if group[0] == "+" else "") + spell(group) for group in groups)


def _currency(amount: str, code: str, scale: str | None) -> str:
    one, many, hundredth = units_en.CURRENCIES[code]
    if scale:
        return f"{number(amount)} {_SCALES.get(scale, scale)} {many}"
    whole, point, cents = amount.replace(",", "").partition(".")
    if not point or len(cents) != 2 or not hundredth:
        return f"{number(amount)} {one if amount == '1' else many}"
    parts = []
    if int(whole) or not int(cents):
        parts.append(f"{cardinal(whole)} {one if whole == '1' else many}")
    if int(cents):
        name = hundredth if int(cents) == 1 else {"penny": "pence"}.get(hundredth, "cents")
        parts.append(f"{cardinal(str(int(cents)))} {name}")
    return " and ".join(parts)


def _money(match: re.Match[str]) -> str:
    if match["b"] is None:
        return _currency(match["a"], match["c"], match["scale"])
    return f"{number(match['a'])} to {_currency(match['b'], match['c'], match['scale'])}"


def _percent(match: re.Match[str]) -> str:
    words = number(match["a"])
    return words + (f" to {number(match['b'])}" if match["b"] else "") + " percent"


def _unit(match: re.Match[str]) -> str:
    words = number(match["a"])
    last = match["b"] or match["a"]
    if match["b"]:
        words += f" to {number(match['b'])}"
    return f"{words} {units_en.unit(match['u'], last)}"


def _range(match: re.Match[str]) -> str:
    first, second, dash = match["a"], match["b"], match["dash"]
    if is_year(first) and (is_year(second) or len(second) == 2):
        return f"{year(first)} to {year(second) if len(second) == 4 else cardinal(second)}"
    if dash != dash.strip() and "-" in dash and float(first) >= float(second):
        return f"{number(first)} minus {number(second)}"
    return f"{number(first)} to {number(second)}"


def _portion(above: str, below: str) -> str:
    name = _FRACTIONS.get(below) or ordinal(below)
    if above == "1":
        return f"one {name}"
    return f"{cardinal(above)} {'halves' if name == 'half' else name + 's'}"


def _fraction(match: re.Match[str]) -> str | None:
    above, below = match["a"], match["b"]
    if (above, below) == ("24", "7"):
        return "twenty-four seven"
    if (above, below) == ("50", "50"):
        return "fifty-fifty"
    if not 0 < int(above) < int(below) or below[0] == "0":
        return f"{cardinal(above)} slash {cardinal(below)}"
    if match["whole"]:
        portion = _portion(above, below)
        joined = "a" + portion[3:] if above == "1" else portion
        return f"{cardinal(match['whole'])} and {joined}"
    return _portion(above, below)


def _vulgar(match: re.Match[str]) -> str:
    portion = _portion(*_VULGAR[match["f"]])
    if not match["whole"]:
        return portion
    return f"{cardinal(match['whole'])} and {portion.replace('one ', 'a ', 1)}"


def _power(match: re.Match[str]) -> str:
    exponent = (match["e"] or match["s"]).translate(_SUPERSCRIPTS)
    if exponent in ("2", "3"):
        return f"{number(match['a'])} {'squared' if exponent == '2' else 'cubed'}"
    return f"{number(match['a'])} to the power of {number(exponent)}"


def _scientific(match: re.Match[str]) -> str:
    words = f"{number(match['a'])} times ten to the power of {number(match['e'].lstrip('+'))}"
    return f"{words} {units_en.unit(match['u'], '2')}" if match["u"] else words


def _sum(match: re.Match[str]) -> str:
    words = number(match["a"])
    for sign, operand in re.findall(rf"\s?([-+−×*xX÷=≈<>≤≥])\s?({NUMBER})", match["rest"]):
        words += f" {_OPERATORS[sign]} {number(operand)}"
    return words


def _version(match: re.Match[str]) -> str:
    if re.fullmatch(r"(?:\d{1,3}\.){3}\d{1,3}", match[0]):
        return " dot ".join(map(spell, match["n"].split(".")))
    said = " point ".join(cardinal(part) for part in match["n"].split("."))
    return ("version " if match[0][0] in "vV" else "") + said


def _code(match: re.Match[str]) -> str | None:
    pieces = []
    for piece in re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?|\+", match[0]):
        if piece == "+":
            pieces.append("plus")
        elif not piece[0].isdigit():
            pieces.append(piece)
        else:
            short = "." in piece or len(piece) <= 2
            pieces.append(number(piece) if short else spell(piece))
    return " ".join(pieces)


def _ordinal_sign(match: re.Match[str]) -> str:
    return ordinal(match["n"].replace(",", ""))


def _title(match: re.Match[str]) -> str | None:
    """Read a title in front of a name; ``St.`` and ``Dr.`` behind a name are streets."""
    title = match["t"]
    if title in units_en.ABBREVIATIONS and re.search(r"[A-Z0-9][\w.]* \Z", before(match)):
        return None
    return units_en.TITLES[title]


def _abbreviation(match: re.Match[str]) -> str:
    tail = behind(match)
    words = units_en.ABBREVIATIONS[match["w"]]
    ends = not tail.strip() or re.match(r"\s+[A-Z]", tail)
    keeps = ends and match["w"] not in ("e.g", "i.e", "vs", "approx", "cf", "viz", "a.k.a")
    return words + ("." if keeps else "")


def _letters(match: re.Match[str]) -> str:
    tail = behind(match)
    ends = not tail.strip() or re.match(r"\s+(?:The|It|He|She|They|We|I|This|That|But|And)\b", tail)
    return match[0].replace(".", "") + ("." if ends else "")


def _whole(match: re.Match[str]) -> str:
    digits, tail = match[0], behind(match)
    if is_year(digits):
        told = _YEAR_BEFORE.search(before(match, 20)) is not None
        alone = re.match(r"\s+[a-z]", tail) is None
        if told or (digits >= "1900" and alone):
            return year(digits)
    return cardinal(digits)


_RULES: Final[list[Rule]] = [
    rule(MAIL, _address),
    rule(ADDRESS, _address),
    rule(FILE, _address),
    # Telephone numbers
    rule(
        r"(?:\+?1[- ])?(?:\(\d{3}\)\s?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\d-])",
        _phone,
    ),
    rule(GROUPED, _phone),
    rule(r"\+\d{1,3}(?:[- ]\d{2,5}){2,5}(?![\d-])", _phone),
    rule(r"\d{3}-\d{4}(?![\d-])", _phone),
    rule(
        r"\d{3,}(?!\d|[.,:/%-]\d)",
        lambda m: spell(m[0]) if _NUMBERED.search(before(m, 24)) else None,
    ),
    rule(r"(?<=\b[Cc]all )(?:911|999|112|411|311)(?!\d)", _phone),
    *calendar_en.RULES,
    # Money, percent, units
    rule(
        rf"(?P<c>{_MONEY})\s?(?P<a>{NUMBER})(?:{_DASH}(?:(?P=c))?(?P<b>{NUMBER}))?"
        rf"(?:\s?(?P<scale>{_SCALE}))?",
        _money,
    ),
    rule(
        rf"(?P<a>{NUMBER})\s?(?P<c>USD|EUR|GBP|JPY|CNY|RMB|€|£){_END}",
        lambda m: _currency(m["a"], m["c"], None),
    ),
    rule(
        rf"(?P<a>{NUMBER})\s?(?:¢)",
        lambda m: f"{number(m['a'])} cent{'' if m['a'] == '1' else 's'}",
    ),
    rule(rf"(?P<a>{_SIGNED})%?(?:{_DASH}(?P<b>{NUMBER}))?\s?(?:%|percent\b)", _percent),
    rule(
        r"(?P<f>\d)'\s?(?P<i>\d{1,2})(?:'')?(?!\d)",
        lambda m: f"{cardinal(m['f'])} foot {cardinal(m['i'])}",
    ),
    rule(rf"(?P<a>{_SIGNED})(?:{_DASH}(?P<b>{NUMBER}))?\s?(?P<u>{_UNIT}){_END}", _unit),
    # Ordinals, decades, versions
    rule(r"(?P<n>\d[\d,]*)(?:st|nd|rd|th)(?![A-Za-z])", _ordinal_sign),
    rule(r"(?:[vV]\.?\s?)?(?P<n>\d+(?:\.\d+){2,})(?![\d.]\d)", _version),
    rule(r"[vV]\.?\s?(?P<n>\d+(?:\.\d+)*)(?!\w)", _version),
    # Roman numerals
    rule(
        rf"(?<=[a-z] )(?P<n>{ROMAN})",
        lambda m: _roman(m),
    ),
    rule(rf"[{_CIRCLED}]", lambda m: cardinal(str(_CIRCLED.index(m[0]) + 1))),
    # Abbreviations
    rule(
        rf"(?P<w>{alternatives(list(units_en.BEFORE_NUMBER))})\.\s?(?=\d)",
        lambda m: units_en.BEFORE_NUMBER[m["w"]] + " ",
    ),
    rule(r"#(?P<n>\d+)(?!\w)", lambda m: f"number {cardinal(m['n'])}"),
    rule(rf"(?P<t>{alternatives(list(units_en.TITLES))})\.(?=\s[A-Z])", _title),
    rule(rf"(?P<w>{alternatives(list(units_en.ABBREVIATIONS))})\.(?![A-Za-z])", _abbreviation),
    rule(r"vs(?![A-Za-z])", lambda m: "versus"),
    rule(r"(?:[A-Z]\.){2,}", _letters),
    rule(r"w/o(?=\s)", lambda m: "without"),
    rule(r"w/(?=\s)", lambda m: "with"),
    rule(r"=(?=\s)", lambda m: "equals"),
    rule(r"&(?=\s)", lambda m: "and"),
    # Arithmetic
    rule(
        rf"(?P<a>\d(?:\.\d+)?)[eE](?P<e>[-+]?\d{{1,3}})(?:\s?(?P<u>{_UNIT}){_END}|(?![\w.]))",
        _scientific,
    ),
    rule(rf"(?P<a>{NUMBER})(?:\^(?P<e>-?\d+)|(?P<s>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))", _power),
    rule(
        rf"(?P<a>{_SIGNED})(?P<rest>(?:\s?[-+−×*xX÷]\s?{NUMBER})*\s?[=≈<>≤≥]\s?{NUMBER}"
        rf"|(?:\s?[+×*÷xX]\s?{NUMBER})+)(?![A-Za-z\d])",
        _sum,
    ),
    rule(r"(?:(?P<whole>\d+)\s)?(?P<a>\d{1,3})\s?/\s?(?P<b>\d{1,3})(?![\d/])", _fraction),
    rule(rf"(?P<whole>\d+)?\s?(?P<f>[{''.join(_VULGAR)}])", _vulgar),
    rule(rf"(?P<a>{NUMBER})(?P<dash>{_DASH})(?P<b>{NUMBER})(?![\d-]|-\d)", _range),
    rule(r"±\s?(?=\d)", lambda m: "plus or minus "),
    rule(r"[~～≈]\s?(?=\d)", lambda m: "about "),
    rule(r"[<>≤≥]\s?(?=\d)", lambda m: _OPERATORS[m[0][0]].removeprefix("is ") + " "),
    rule(
        r"(?<=[\dA-Za-z])/(?=(?:month|year|day|hour|week|night|person|kg|lb|mo|yr|hr|h)(?![A-Za-z]))",
        lambda m: " per ",
    ),
    rule(rf"(?P<a>{NUMBER})\+(?!\w)", lambda m: f"{number(m['a'])} plus"),
    rule(
        r"(?P<a>\d{2,}|\d+\.\d+)(?P<s>[kKMB])(?![A-Za-z0-9])(?=\s[a-z])",
        lambda m: f"{number(m['a'])} {_SCALES[m['s']]}",
    ),
    # Letters with digits, then plain numbers
    rule(
        r"(?:[A-Za-z]+[-_]?\d+(?:\.\d+)?|\d+[-_]?[A-Za-z]+)(?:[-_]?[A-Za-z0-9]+)*(?:\+(?!\w))?",
        _code,
    ),
    rule(r"(?<![\w)])[-−+](?=\d)\d[\d,]*(?:\.\d+)?", lambda m: number(m[0])),
    rule(rf"(?:{INT})?\.\d+(?!\d|\.\d)", lambda m: number("0" + m[0] if m[0][0] == "." else m[0])),
    rule(r"\d{1,3}(?:,\d{3})+(?!\d)", lambda m: number(m[0])),
    rule(r"\d+", _whole),
]


def _roman(match: re.Match[str]) -> str | None:
    """Read a Roman numeral behind a word that takes one."""
    name = before(match, 24).split()[-1]
    value = str(roman(match["n"]))
    if name in units_en.ROMAN_CARDINAL:
        return cardinal(value)
    if name in units_en.ROMAN_ORDINAL and match["n"] != "I":
        return "the " + ordinal(value)
    return None


def read_en(text: str, start: int, end: int) -> Sequence[Reading]:
    """Read a stretch of English; see `readings.read`."""
    return read(_RULES, text, start, end)
