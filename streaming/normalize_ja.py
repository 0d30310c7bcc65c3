"""How Japanese reads numbers, signs and codes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cosyvoice_stream.streaming.readings import (
    ADDRESS,
    FILE,
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
    valid_date,
)

_DIGITS: Final = "零一二三四五六七八九"
_PLACES: Final = ("", "十", "百", "千")
_GROUPS: Final = ("", "万", "億", "兆")
_LONGEST: Final = 16

_INT = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_NUM = rf"(?:(?:{_INT})(?:\.\d+)?)"
_SIGNED = rf"(?:(?<![\w)])[-−+])?{_NUM}"
_DASH = r"\s?(?:-|–|—|−|~|～|〜)\s?"
UNITS: Final = {
    "km": "キロメートル",
    "m": "メートル",
    "cm": "センチメートル",
    "mm": "ミリメートル",
    "kg": "キログラム",
    "g": "グラム",
    "mg": "ミリグラム",
    "t": "トン",
    "L": "リットル",
    "l": "リットル",
    "mL": "ミリリットル",
    "ml": "ミリリットル",
    "km/h": "キロメートル毎時",
    "m/s": "メートル毎秒",
    "m²": "平方メートル",
    "㎡": "平方メートル",
    "km²": "平方キロメートル",
    "m³": "立方メートル",
    "㎞": "キロメートル",
    "㎏": "キログラム",
    "㎝": "センチメートル",
    "㎜": "ミリメートル",
    "℃": "度",
    "°C": "度",
    "°": "度",
    "Hz": "ヘルツ",
    "kHz": "キロヘルツ",
    "MHz": "メガヘルツ",
    "GHz": "ギガヘルツ",
    "KB": "キロバイト",
    "MB": "メガバイト",
    "GB": "ギガバイト",
    "TB": "テラバイト",
    "W": "ワット",
    "kW": "キロワット",
    "kWh": "キロワット時",
    "V": "ボルト",
    "mAh": "ミリアンペア時",
    "dB": "デシベル",
    "hPa": "ヘクトパスカル",
    "kcal": "キロカロリー",
    "fps": "フレーム毎秒",
    "ms": "ミリ秒",
    "s": "秒",
    "min": "分",
    "h": "時間",
}
CURRENCIES: Final = {
    "¥": "円",
    "￥": "円",
    "$": "ドル",
    "US$": "ドル",
    "€": "ユーロ",
    "£": "ポンド",
    "₩": "ウォン",
    "JPY": "円",
    "USD": "ドル",
    "EUR": "ユーロ",
}
_UNIT = alternatives(list(UNITS))
_MONEY = alternatives(list(CURRENCIES))
_NUMBERED: Final = re.compile(
    r"(?:番号|暗証番号|電話|コード|パスワード|会員番号|郵便番号|〒)[^\d、。]{0,3}\Z"
)
_SIGN_NAMES: Final = {
    ".": "ドット",
    "@": "アットマーク",
    "/": "スラッシュ",
    "_": "アンダーバー",
    "-": "ハイフン",
    "+": "プラス",
    ":": "コロン",
    "?": "クエスチョン",
    "=": "イコール",
    "&": "アンド",
    "#": "シャープ",
    "%": "パーセント",
    "~": "チルダ",
}
_OPERATORS: Final = {
    "+": "足す",
    "-": "引く",
    "−": "引く",
    "×": "掛ける",
    "*": "掛ける",
    "x": "掛ける",
    "÷": "割る",
    "=": "イコール",
    "<": "小なり",
    ">": "大なり",
}
_CIRCLED: Final = "①②③④⑤⑥⑦⑧⑨⑩"
_ROMAN_SIGNS: Final = "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ"
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def spell(digits: str) -> str:
    """Read digit by digit, as telephone numbers are."""
    return "".join(
        ("ゼロ" if char == "0" else _DIGITS[int(char)]) if "0" <= char <= "9" else char
        for char in digits
    )


def cardinal(digits: str) -> str:
    """Read a whole number; very long ones and those behind a zero digit by digit."""
    if len(digits) > _LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return spell(digits)
    if not digits.strip("0"):
        return "ゼロ"
    words = ""
    for index in range((len(digits) - 1) // 4, -1, -1):
        group = digits[-4 * (index + 1) : len(digits) - 4 * index]
        said = ""
        for place, char in zip(range(len(group) - 1, -1, -1), group, strict=True):
            if char == "0":
                continue
            # 百 stands alone; 千 does unless a myriad follows it.
            lone = char == "1" and place and not (place == 3 and index)
            said += ("" if lone else _DIGITS[int(char)]) + _PLACES[place]
        if said:
            words += said + _GROUPS[index]
    return words


def number(text: str) -> str:
    """Read a number with or without sign, thousands commas and decimals."""
    sign = {"-": "マイナス", "−": "マイナス", "+": "プラス"}.get(text[:1], "")
    whole, point, decimals = text.lstrip("+-−").replace(",", "").partition(".")
    if not point or not decimals:
        return sign + cardinal(whole or "0")
    first = "零" if whole in ("", "0") else cardinal(whole)
    return f"{sign}{first}点{''.join(_DIGITS[int(char)] for char in decimals)}"


def _address(match: re.Match[str]) -> str:
    pieces = PIECE.findall(SCHEME.sub("", match[0]).rstrip("/"))
    return "".join(_SIGN_NAMES.get(piece, spell(piece)) for piece in pieces)


def _phone(match: re.Match[str]) -> str:
    return "、".join(spell(group) for group in re.findall(r"\d+", match[0]))


def _numbered(match: re.Match[str]) -> str | None:
    return spell(match[0]) if _NUMBERED.search(before(match)) else None


def _date(match: re.Match[str]) -> str | None:
    if not valid_date(match["m"], match["d"]):
        return None
    year, month, day = (cardinal(str(int(match[name]))) for name in "ymd")
    return f"{year}年{month}月{day}日"


def _time(match: re.Match[str]) -> str | None:
    hour, minute, second = int(match["h"]), int(match["m"]), match["s"]
    if hour > 24 or minute > 59:
        return None
    part = {"a": "午前", "p": "午後"}.get((match["ap"] or "").lower(), "")
    words = f"{part}{cardinal(str(hour))}時"
    if minute or second:
        words += cardinal(str(minute)) + "分"
    return words + (f"{cardinal(str(int(second)))}秒" if second else "")


def _money(match: re.Match[str]) -> str:
    currency = CURRENCIES[match["c"]]
    words = number(match["a"]) + (match["scale"] or "")
    return words if behind(match).startswith(currency) else words + currency


def _measured(match: re.Match[str], name: str) -> str:
    words = number(match["a"])
    return f"{words}から{number(match['b'])}{name}" if match["b"] else words + name


def _fraction(match: re.Match[str]) -> str | None:
    if not int(match["b"]):
        return None
    return f"{cardinal(match['b'])}分の{cardinal(match['a'])}"


def _sum(match: re.Match[str]) -> str:
    words = number(match["a"])
    for sign, operand in re.findall(rf"\s?([-+−×*x÷=<>])\s?({_NUM})", match["rest"]):
        words += _OPERATORS[sign] + number(operand)
    return words


def _power(match: re.Match[str]) -> str:
    exponent = (match["e"] or match["s"]).translate(_SUPERSCRIPTS)
    return f"{number(match['a'])}の{number(exponent)}乗"


def _code(match: re.Match[str]) -> str:
    words = ""
    for piece in re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?|.", match[0]):
        if piece[0].isdigit():
            whole = "." in piece or len(piece) <= 2
            words += number(piece) if whole else spell(piece)
        elif piece == "+":
            words += "プラス"
        elif piece not in "-_":
            words += piece
        elif words[-1:].isascii():
            words += " "
    return words.strip()


_RULES: Final[list[Rule]] = [
    rule(rf"(?<=:\d\d){_DASH}(?=\d{{1,2}}:\d\d)", lambda m: "から"),
    rule(MAIL, _address),
    rule(ADDRESS, _address),
    rule(FILE, _address),
    rule(r"(?:\+81[- ])?\d{1,4}-\d{2,4}-\d{3,4}(?![\d-])", _phone),
    rule(r"0[789]0\d{8}(?!\d)", _phone),
    rule(r"(?<=〒)\d{3}-\d{4}(?!\d)", _phone),
    rule(
        r"\d{3,}(?!\d|%|[.,:/]\d)", lambda m: spell(m[0]) if _NUMBERED.search(before(m)) else None
    ),
    rule(r"(?P<y>[12]\d{3})(?P<k>[-/.])(?P<m>\d{1,2})(?P=k)(?P<d>\d{1,2})(?![\d.])", _date),
    rule(
        r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?!\d|:\d)"
        r"(?:\s?(?P<ap>[AaPp])(?:\.[Mm]\b\.?|[Mm]\b))?",
        _time,
    ),
    rule(rf"{_NUM}:{_NUM}(?!:?\d)", lambda m: "対".join(map(number, m[0].split(":")))),
    rule(rf"(?P<c>{_MONEY})\s?(?P<a>{_NUM})(?P<scale>[千万億]{{1,2}})?", _money),
    rule(
        rf"(?P<a>{_SIGNED})%?(?:{_DASH}(?P<b>{_NUM}))?\s?[%％]",
        lambda m: _measured(m, "パーセント"),
    ),
    rule(
        rf"(?P<a>{_SIGNED})(?:{_DASH}(?P<b>{_NUM}))?\s?(?P<u>{_UNIT})(?![A-Za-z0-9])",
        lambda m: _measured(m, UNITS[m["u"]]),
    ),
    rule(
        r"(?:[vV]\.?\s?)?(?P<n>\d+(?:\.\d+){2,})(?![\d.]\d)",
        lambda m: "点".join(map(cardinal, m["n"].split("."))),
    ),
    rule(
        r"[vV]\.?\s?(?P<n>\d+(?:\.\d+)*)(?!\w)",
        lambda m: "点".join(map(cardinal, m["n"].split("."))),
    ),
    rule(rf"(?<=第){ROMAN}", lambda m: cardinal(str(roman(m[0])))),
    rule(rf"{ROMAN}(?=[世章期型部巻])", lambda m: cardinal(str(roman(m[0])))),
    rule(rf"[{_ROMAN_SIGNS}]", lambda m: cardinal(str(_ROMAN_SIGNS.index(m[0]) + 1))),
    rule(rf"[{_CIRCLED}]", lambda m: cardinal(str(_CIRCLED.index(m[0]) + 1))),
    rule(r"(?:No|NO)\.\s?(?P<n>\d+)(?!\d)", lambda m: f"ナンバー{cardinal(m['n'])}"),
    rule(r"#(?P<n>\d+)(?![\w.])", lambda m: f"ナンバー{cardinal(m['n'])}"),
    rule(rf"(?P<a>{_NUM})(?:\^(?P<e>-?\d+)|(?P<s>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))", _power),
    rule(
        rf"(?P<a>{_SIGNED})(?P<rest>(?:\s?[-+−×*x÷]\s?{_NUM})*\s?[=<>]\s?{_NUM}"
        rf"|(?:\s?[+×*÷x]\s?{_NUM})+)(?![A-Za-z\d])",
        _sum,
    ),
    rule(r"(?P<a>\d{1,4})/(?P<b>\d{1,4})(?![\d/])", _fraction),
    rule(r"½", lambda m: "二分の一"),
    rule(
        rf"(?P<a>{_NUM}){_DASH}(?P<b>{_NUM})(?![\d-]|-\d)",
        lambda m: f"{number(m['a'])}から{number(m['b'])}",
    ),
    rule(rf"[~～≈]\s?(?P<a>{_NUM})", lambda m: "約" + number(m["a"])),
    rule(
        r"(?:[A-Za-z]+[-_]?\d+(?:\.\d+)?|\d+[-_]?[A-Za-z]+)(?:[-_]?[A-Za-z0-9]+)*(?:\+(?!\w))?",
        _code,
    ),
    rule(r"(?<![\w)])[-−+](?=\d)\d[\d,]*(?:\.\d+)?", lambda m: number(m[0])),
    rule(rf"(?:{_INT})\.\d+", lambda m: number(m[0])),
    rule(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+", lambda m: number(m[0])),
]


def read_ja(text: str, start: int, end: int) -> Sequence[Reading]:
    """Read a stretch of Japanese; see `readings.read`."""
    return read(_RULES, text, start, end)
