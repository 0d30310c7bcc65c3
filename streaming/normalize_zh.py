"""How Chinese reads numbers, signs and codes: Mandarin, and Cantonese where it differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from cosyvoice_stream.streaming import calendar_zh
from cosyvoice_stream.streaming.calendar_zh import DASH, SCORED
from cosyvoice_stream.streaming.numbers_zh import cardinal, number, spell
from cosyvoice_stream.streaming.phrases import WIDE_FOLLOWERS
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
from cosyvoice_stream.streaming.units_zh import CURRENCIES, MEASURES, UNITS

_INT = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_NUM = rf"(?:(?:{_INT})(?:\.\d+)?)"
_SIGNED = rf"(?:(?<![\w)年月日号點点时周])[-−+])?{_NUM}"
_SCALE = "[百千万亿]{1,2}"
_MONEY: Final = alternatives(list(CURRENCIES))
_UNIT: Final = alternatives(list(UNITS))
_UNIT_END = r"(?![A-Za-z0-9])"
_NUMBERED: Final = re.compile(
    r"(?:(?:验证码|驗證碼|密码|密碼|账号|帐号|賬號|帳號|编号|編號|卡号|单号|学号|工号|尾号|群号|房号|会议号"
    r"|邮编|代码|车牌|股票|航班|车次|号码|號碼|电话|電話|手机|手機|热线|客服|报警|火警|急救|QQ|微信)"
    r"(?:号码|號碼|号|號)?(?:是|为|係|：|:|\s|（|\(|请打|打){0,3}|拨打|致电|打俾|打|拨)\s?\Z"
)
_MEASURE: Final = re.compile(rf"\s?(?:{'|'.join(sorted(MEASURES, key=len, reverse=True))})")
_YEAR: Final = re.compile(r"\s?年(?!级|前|后|内|来|间|多|以|之|的?时间)")
_SINCE: Final = re.compile(r"(?:[在从自到于至是，。！？、：；（\s]|\A)\Z")
_PLACE: Final = re.compile(rf"(?![{''.join(WIDE_FOLLOWERS)}])[\u4e00-\u9fff]")
_SIGN_NAMES: Final = {
    ".": "点",
    "@": "艾特",
    "/": "斜杠",
    "_": "下划线",
    "-": "杠",
    "+": "加",
    ":": "冒号",
    "?": "问号",
    "=": "等于",
    "&": "和",
    "#": "井号",
    "%": "百分号",
    "~": "波浪号",
}
_OPERATORS: Final = {
    "+": "加",
    "-": "减",
    "−": "减",
    "×": "乘",
    "*": "乘",
    "x": "乘",
    "X": "乘",
    "÷": "除以",
    "=": "等于",
    "≈": "约等于",
    "<": "小于",
    ">": "大于",
    "≤": "小于等于",
    "≥": "大于等于",
}
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_VULGAR: Final = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5)}
_CIRCLED: Final = "①②③④⑤⑥⑦⑧⑨⑩"
_ROMAN_SIGNS: Final = "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ"
_TRADITIONAL: Final = str.maketrans("点两万亿负约时赫兹兆", "點兩萬億負約時赫茲兆")


def _counted(match: re.Match[str], digits: str) -> str:
    """Read a number in front of what follows it: 两 before a measure word."""
    ordinal = before(match, 2).rstrip().endswith(("第", "初", "周", "星期", "礼拜"))
    return number(digits, counting=not ordinal and _MEASURE.match(behind(match)) is not None)


def _address(match: re.Match[str]) -> str:
    pieces = PIECE.findall(SCHEME.sub("", match[0]).rstrip("/"))
    return "".join(_SIGN_NAMES.get(piece, spell(piece)) for piece in pieces)


def _phone(one: str, match: re.Match[str]) -> str:
    groups = re.findall(r"\+?\d+", match[0])
    return "，".join(spell(group.replace("+", "加"), one=one) for group in groups)


def _numbered(one: str, match: re.Match[str]) -> str | None:
    if _MEASURE.match(behind(match)) or not _NUMBERED.search(before(match)):
        return None
    return spell(match[0], one=one)


def _ratio(match: re.Match[str]) -> str:
    return "比".join(number(part) for part in match[0].split(":"))


def _percent(match: re.Match[str]) -> str:
    name = {"%": "百分之", "％": "百分之", "‰": "千分之"}[match["sign"]]
    sign = {"-": "负", "−": "负", "+": "正"}.get(match["a"][0], "")
    words = sign + name + number(match["a"].lstrip("+-−"))
    if match["b"] is None:
        return words
    again = name if match["first"] else ""
    return f"{words}到{again}{number(match['b'])}"


def _plain_money(amount: str) -> str:
    whole, point, decimals = amount.partition(".")
    decimals = decimals.rstrip("0")
    return whole + (point + decimals if decimals else "")


def _money(match: re.Match[str]) -> str:
    currency = CURRENCIES[match["c"]]
    counting = not match["scale"] or match["scale"][0] not in "百千万亿"
    words = number(_plain_money(match["a"]), counting=counting) + (match["scale"] or "")
    if match["b"] is not None:
        words += "到" + number(_plain_money(match["b"]), counting=True)
    tail = behind(match)
    return words if tail.startswith(currency) else words + currency


def _money_code(match: re.Match[str]) -> str:
    return number(_plain_money(match["a"]), counting=True) + CURRENCIES[match["c"]]


def _unit(match: re.Match[str]) -> str:
    first = number(match["a"], counting=True)
    unit = UNITS[match["u"]]
    if match["b"] is not None:
        return f"{first}到{number(match['b'], counting=True)}{unit}"
    return first + unit


def _range(match: re.Match[str]) -> str | None:
    first, second = match["a"], match["b"]
    if SCORED.search(before(match)):
        return f"{number(first)}比{number(second)}"
    years = _YEAR.match(behind(match)) is not None
    if years or (_is_year(first) and _is_year(second)):
        return f"{spell(first)}到{spell(second)}"
    ascending = float(first.replace(",", "")) < float(second.replace(",", ""))
    if not ascending and match["dash"].strip() in "-–—−":
        spaced = match["dash"] != match["dash"].strip()
        return f"{number(first)}{'减' if spaced else '杠'}{number(second)}"
    counting = _MEASURE.match(behind(match)) is not None
    return f"{number(first, counting=counting)}到{number(second, counting=counting)}"


def _is_year(digits: str) -> bool:
    return len(digits) == 4 and "1500" <= digits <= "2099"


def _fraction(match: re.Match[str]) -> str | None:
    above, below = match["a"], match["b"]
    if not int(below):
        return None
    if (above, below) in (("24", "7"), ("7", "24")):
        return f"{cardinal(above)}{cardinal(below)}"
    return f"{cardinal(below)}分之{cardinal(above)}"


def _power(match: re.Match[str]) -> str:
    exponent = (match["e"] or match["s"]).translate(_SUPERSCRIPTS)
    return f"{number(match['a'])}的{number(exponent)}次方"


def _scientific(match: re.Match[str]) -> str:
    exponent = match["e"].lstrip("+")
    unit = UNITS[match["u"]] if match["u"] else ""
    return f"{number(match['a'])}乘十的{number(exponent)}次方{unit}"


def _sum(match: re.Match[str]) -> str | None:
    words = number(match["a"])
    for sign, operand in re.findall(rf"\s?([-+−×*xX÷=≈<>≤≥])\s?({_NUM})", match["rest"]):
        words += _OPERATORS[sign] + number(operand)
    return words


def _pressure(match: re.Match[str]) -> str:
    words = f"{cardinal(match['a'] or match['c'])}，{cardinal(match['b'] or match['d'])}"
    return words + ("毫米汞柱" if match["a"] else "")


def _about(match: re.Match[str]) -> str:
    return "约等于" if match[0][0] == "≈" and before(match, 1).strip() else "约"


def _version(match: re.Match[str]) -> str:
    if re.fullmatch(r"(?:\d{1,3}\.){3}\d{1,3}", match[0]):
        return "点".join(map(spell, match["n"].split(".")))
    return "点".join(cardinal(part) for part in match["n"].split("."))


def _digits_of_code(digits: str) -> str:
    return cardinal(digits) if len(digits) <= 2 else spell(digits)


def _code(match: re.Match[str]) -> str:
    words = ""
    for piece in re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?|.", match[0]):
        if piece[0].isdigit():
            words += number(piece) if "." in piece else _digits_of_code(piece)
        elif piece == "+":
            words += "加"
        elif piece not in "-_":
            words += piece
        elif words[-1:].isascii():
            words += " "
    return words.strip()


def _numbered_as(match: re.Match[str]) -> str:
    digits = match["n"]
    return "第" + cardinal(digits) if len(digits) < 4 else spell(digits)


def _whole(one: str, match: re.Match[str]) -> str | None:
    """Read a whole number by what follows it."""
    digits, tail = match[0], behind(match)
    if len(digits) == 4 and _YEAR.match(tail) and digits >= "1000":
        return spell(digits)
    if (
        digits[:2] in ("19", "20")
        and len(digits) == 4
        and _SINCE.search(before(match, 1))
        and _PLACE.match(tail)
    ):
        return spell(digits)
    if len(digits) == 2 and re.match(r"\s?年(?:[\d]|$|[，。、])", tail) and digits > "48":
        return spell(digits)
    if len(digits) == 2 and re.match(r"后(?!天|面|来|卫)", tail) and digits[1] in "05":
        return spell(digits)
    if len(digits) == 2 and tail.startswith("折") and digits[1] != "0":
        return spell(digits)
    if len(digits) >= 3 and re.match(r"室|房|路(?:公交|车)?|次列车|航班", tail):
        return spell(digits, one=one)
    if len(digits) == 3 and before(match, 2) in ("波音", "空客"):
        return spell(digits)
    return _counted(match, digits)


def _rules(one: str) -> list[Rule]:
    """The rules, most specific first; `one` is what 1 is called in telephone numbers."""
    sep = r"[- ]?"
    return [
        rule(MAIL, _address),
        rule(ADDRESS, _address),
        rule(FILE, _address),
        rule(r"\[[A-Za-z]{1,3}\d\]", lambda m: m[0]),
        # Telephone numbers
        rule(
            rf"(?:\+86{sep})?1[3-9]\d{sep}\d{{4}}{sep}\d{{4}}(?![\d.])",
            partial(_phone, one),
        ),
        rule(r"(?:\(0\d{2,3}\)\s?|0\d{2,3}[- ])\d{7,8}(?![\d.])", partial(_phone, one)),
        rule(GROUPED, partial(_phone, one)),
        rule(r"(?:400|800)[- ]\d{3,4}[- ]\d{3,4}(?![\d.])", partial(_phone, one)),
        rule(r"\d{3,}(?!\d|%|[.,:/]\d)", partial(_numbered, one)),
        *calendar_zh.RULES,
        rule(rf"{_NUM}:{_NUM}(?!:?\d)", _ratio),
        # Money, percent, units
        rule(
            rf"(?P<c>{_MONEY})\s?(?P<a>{_NUM})(?:{DASH}(?:(?P=c))?(?P<b>{_NUM}))?(?P<scale>{_SCALE})?",
            _money,
        ),
        rule(rf"(?P<a>{_NUM})\s?(?P<c>USD|RMB|CNY|EUR|GBP|JPY|HKD){_UNIT_END}", _money_code),
        rule(
            rf"(?P<a>{_SIGNED})(?P<first>[%‰])?(?:{DASH}(?P<b>{_NUM}))?\s?(?P<sign>[%％‰])",
            _percent,
        ),
        rule(
            rf"(?P<a>{_SIGNED})(?:{DASH}(?P<b>{_NUM}))?\s?(?P<u>{_UNIT}){_UNIT_END}",
            _unit,
        ),
        # Versions, codes
        rule(r"(?:[vV]\.?\s?)?(?P<n>\d+(?:\.\d+){2,})(?![\d.]\d)", _version),
        rule(r"[vV]\.?\s?(?P<n>\d+(?:\.\d+)*)(?![\w])", _version),
        rule(rf"{ROMAN}(?=\s?[期级型类世代章卷部阶篇])", lambda m: cardinal(str(roman(m[0])))),
        rule(rf"(?<=第){ROMAN}", lambda m: cardinal(str(roman(m[0])))),
        rule(rf"[{_ROMAN_SIGNS}]", lambda m: cardinal(str(_ROMAN_SIGNS.index(m[0]) + 1))),
        rule(rf"[{_CIRCLED}]", lambda m: cardinal(str(_CIRCLED.index(m[0]) + 1))),
        rule(r"(?:No|NO)\.\s?(?P<n>\d+)(?!\d)", _numbered_as),
        rule(r"#(?P<n>\d+)(?![\w.])", lambda m: cardinal(m["n"]) + "号"),
        # Arithmetic
        rule(
            r"(?P<a>\d{2,3})/(?P<b>\d{2,3})\s?mmHg|(?<=血压)(?P<c>\d{2,3})/(?P<d>\d{2,3})",
            _pressure,
        ),
        rule(
            rf"(?P<a>\d(?:\.\d+)?)[eE](?P<e>[-+]?\d{{1,3}})(?:\s?(?P<u>{_UNIT}){_UNIT_END}|(?![\w.]))",
            _scientific,
        ),
        rule(rf"(?P<a>{_NUM})(?:\^(?P<e>-?\d+)|(?P<s>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))", _power),
        rule(
            rf"(?P<a>{_SIGNED})(?P<rest>(?:\s?[-+−×*xX÷]\s?{_NUM})*\s?[=≈<>≤≥]\s?{_NUM}"
            rf"|(?:\s?[+×*÷xX]\s?{_NUM})+)(?![A-Za-z\d])",
            _sum,
        ),
        rule(r"(?P<a>\d{1,4})/(?P<b>\d{1,4})(?![\d/])", _fraction),
        rule(rf"[{''.join(_VULGAR)}]", lambda m: "{1}分之{0}".format(*_vulgar(m[0]))),
        rule(rf"(?P<a>{_NUM})(?P<dash>{DASH})(?P<b>{_NUM})(?![\d-]|-\d)", _range),
        rule(r"±\s?(?=\d)", lambda m: "正负"),
        rule(r"[~～≈]\s?(?=\d)", _about),
        rule(r"[<>≤≥]\s?(?=\d)", lambda m: _OPERATORS[m[0][0]]),
        rule(r"(?<=[\u4e00-\u9fffA-Za-z])/(?=[分秒时天日周月年个人次户平])", lambda m: "每"),
        rule(
            r"(?<=[\u4e00-\u9fff》」”])(?:I{2,3}|IV|VI{0,3}|IX)(?![A-Za-z0-9])",
            lambda m: cardinal(str(roman(m[0]))),
        ),
        rule(rf"(?P<a>{_NUM})\+(?![\w])", lambda m: number(m["a"]) + "多"),
        # Letters with digits, then plain numbers
        rule(
            r"(?:[A-Za-z]+[-_]?\d+(?:\.\d+)?|\d+[-_]?[A-Za-z]+)(?:[-_]?[A-Za-z0-9]+)*(?:\+(?!\w))?",
            _code,
        ),
        rule(
            r"(?<![\w)年月日号點点时周])[-−+](?=\d)\d[\d,]*(?:\.\d+)?", lambda m: _counted(m, m[0])
        ),
        rule(rf"(?:{_INT})\.\d+", lambda m: number(m[0])),
        rule(r"\d{1,3}(?:,\d{3})+(?!\d)", lambda m: _counted(m, m[0].replace(",", ""))),
        rule(r"\d+", partial(_whole, one)),
    ]


def _vulgar(sign: str) -> tuple[str, str]:
    above, below = _VULGAR[sign]
    return cardinal(str(above)), cardinal(str(below))


_MANDARIN: Final = _rules("幺")
_CANTONESE: Final = _rules("一")


def read_zh(text: str, start: int, end: int) -> Sequence[Reading]:
    """Read a stretch of Mandarin; see `readings.read`."""
    return read(_MANDARIN, text, start, end)


def read_yue(text: str, start: int, end: int) -> Sequence[Reading]:
    """Read a stretch of Cantonese, in traditional characters; see `readings.read`."""
    return [
        Reading(first, last, words.translate(_TRADITIONAL))
        for first, last, words in read(_CANTONESE, text, start, end)
    ]
