"""Where text can be cut so that no number, sign or abbreviation is read in two pieces.

Pure functions of the text around one position; every look-ahead is bounded.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from cosyvoice_stream.streaming import abbreviations
from cosyvoice_stream.streaming.word_lists import word_set

_INNER: Final = r"A-Za-z0-9\u00b5-\u024f.,:;/_@#&%+*=^~$€£¥₩₹¢°'’‘±×÷²³µ\-–—−‰½¼¾⅓⅔⅕⁰-₀℃℉№Ωμ≈≤≥?"
_RUN: Final = re.compile(rf"[{_INNER}０-９～〜％￥㎞㎏㎝㎜㎡Ⅰ-Ⅻ①-⑩]+")
_PLAIN: Final = re.compile(rf"[^{_INNER}０-９～〜％￥㎞㎏㎝㎜㎡Ⅰ-Ⅻ①-⑩<>\[(]+")
_NUMERIC: Final = re.compile(
    r"[0-9０-９①-⑩Ⅰ-Ⅻ½¼¾⅓⅔⅕$€£¥₩₹￥№#±≈≤≥]|(?<![A-Za-z])[IVXLCDM]{1,8}[.,:;?]*\Z"
)
_JOINS: Final = re.compile(r"[0-9０-９%％‰°℃℉+*/=×÷≈≤≥$€£¥¢~～〜²³㎞㎏㎝㎜㎡\-–—−]")
_SPACE: Final = " \t\u00a0\u202f\u3000"
_TAG: Final = re.compile(r"</?[A-Za-z][^<>\n]{0,80}>|<\|[^<>|\n]{0,40}\|>")
_TAG_START: Final = re.compile(r"<(?:/?(?:[A-Za-z][^<>\n]{0,80})?|\|[^<>|\n]{0,40}\|?)\Z")
_MARK: Final = re.compile(r"\[[^\[\]\s]{1,16}\]")
_MARK_START: Final = re.compile(r"\[[^\[\]\s]{0,16}\Z")
_COMPARED: Final = re.compile(r"[<>]\s?(?=[0-9０-９])")
_AREA: Final = re.compile(r"\(\+?\d{2,4}\)")
_AREA_START: Final = re.compile(r"\(\+?\d{0,4}\Z")
_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_LETTERS_AND_STOPS: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:\.[A-Za-z\u00c0-\u024f]+)*\.")

LONGEST_RUN: Final = 256
"""Longer runs without a space are no number and no address that is read out."""
LONGEST_PHRASE: Final = 96

FOLLOWERS: Final = word_set(
    "am pm a.m p.m a.m. p.m. o'clock bc bce ad ce "
    "k m b bn mn x thousand million billion trillion hundred dozen percent pct "
    "usd eur gbp rmb cny jpy hkd dollars dollar euros euro pounds pound cents yuan yen "
    "jan feb mar apr may jun jul aug sep sept oct nov dec january february march april june "
    "july august september october november december "
    "km cm mm nm μm µm kg g mg μg t ml l h hr hrs min mins s sec secs ms km/h km/s m/s mph "
    "kmh w kw mw kwh v kv ma mah hz khz mhz ghz kb mb gb tb kbps mbps gbps db pa kpa hpa mpa "
    "kcal kj cal j in inch inches ft yd mi lb lbs oz gal tbsp tsp px fps rpm bpm ppm mmhg mmol/l "
    "mg/l g/l c f m² m³ km² cm² cm³ sq uhr heures heure horas ore uur januar jänner februar märz "
    "mai juni juli oktober dezember prozent"
)
"""Words that are read together with the number in front of them."""
WIDE_FOLLOWERS: Final = frozenset(
    "年月日号號点點时時分秒刻半个個位名只隻条條张張本件台部辆輛架艘座栋棟间間家块塊片颗顆粒棵朵支枝根把双雙对對套组組份"
    "杯瓶碗盘盤盒箱袋包桶罐壶篇首句章页頁行段幅门門项項种種类類样樣次回遍趟顿頓场場局轮輪步口层層级級倍天岁歲周週星期小"
    "钟鐘世纪紀米公里厘千克斤两吨噸升毫平方立亩英寸尺度元角毛美欧港镑鎊万萬亿億百十成折人男女匹头頭群批股滴者边邊"
    "代期届款枚束串团排列道则則封阵陣番圈集版副顶頂班车車筐打季室房路楼樓型类世卷阶后後第至到多余余几円銭匹羽冊枚"
    "歳才杯軒通丁目秒割階話曲泊便着脚台番回倍字面錠膳"
)
"""Characters that may be read together with the number in front of them."""


_HEADS: Final = word_set(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
"""Words that are read together with the number behind them."""


class Wait(Enum):
    """The only member says that more text decides."""

    WAIT = auto()


WAIT: Final = Wait.WAIT


class Phrase(NamedTuple):
    """A stretch that is read as a whole."""

    end: int
    spoken_as_is: bool
    """It holds nothing that a rule could read."""


def plain_end(text: str, pos: int) -> int:
    """Give the index after the characters from `pos` that are spoken as they are, whatever comes.

    They are letters of scripts without abbreviations, punctuation and white space.
    """
    found = _PLAIN.match(text, pos)
    return found.end() if found else pos


def phrase(text: str, pos: int, final: bool) -> Phrase | Wait:
    """Find the end of the phrase that starts at `pos`, where nothing plain stands.

    Args:
        text: The text seen so far.
        pos: Index of the first character.
        final: Whether the text is complete.
    """
    compared = _COMPARED.match(text, pos)
    if compared is not None:
        end = compared.end()
        numeric = True
    elif text[pos] in "<[(>":
        bracketed = _bracketed(text, pos, final)
        if not isinstance(bracketed, int):
            return bracketed
        if bracketed == pos:
            return Phrase(pos + 1, True)
        end = bracketed
        numeric = True
    else:
        run = _run(text, pos, final)
        if run is WAIT:
            return WAIT
        assert isinstance(run, int)
        end = run
        numeric = _NUMERIC.search(text, pos, end) is not None
    if not numeric and not _abbreviated(text[pos:end]):
        inert = _LETTERS_AND_STOPS.fullmatch(text, pos, end) is None and not (
            set(text[pos:end]) & set("@.&/:='’")
        )
        return Phrase(end, inert)
    return _extended(text, pos, end, final)


def _bracketed(text: str, pos: int, final: bool) -> int | Phrase | Wait:
    """Read what a bracket opens: a tag or mark that stays, an area code, or nothing (`pos`)."""
    if text[pos] in "<>" and not final and not text[pos + 1 :].strip(" "):
        return WAIT if len(text) - pos < 3 else pos
    whole, start = {
        "<": (_TAG, _TAG_START),
        "[": (_MARK, _MARK_START),
        "(": (_AREA, _AREA_START),
        ">": (None, None),
    }[text[pos]]
    if whole is None or start is None:
        return pos
    found = whole.match(text, pos)
    if found is not None:
        return found.end() if text[pos] == "(" else Phrase(found.end(), True)
    if not final and start.match(text, pos):
        return WAIT
    return pos


def _run(text: str, pos: int, final: bool) -> int | Wait:
    found = _RUN.match(text, pos, pos + LONGEST_RUN)
    end = found.end() if found else pos + 1
    if end == len(text) and end - pos < LONGEST_RUN and not final:
        return WAIT
    return end


def _abbreviated(run: str) -> bool:
    """Tell whether the word behind a run decides: it may be an abbreviation, or a month."""
    if not run.endswith("."):
        return run.lower() in _HEADS
    return abbreviations.may_go_on(run[:-1])


def _extended(text: str, pos: int, end: int, final: bool) -> Phrase | Wait:
    """Take in what is read together with the numbers and abbreviations so far."""
    open_word = _abbreviated(text[pos:end])
    while end - pos < LONGEST_PHRASE:
        after = end
        while after < len(text) and text[after] in _SPACE and after - end < 3:
            after += 1
        if after == len(text):
            if final:
                break
            return WAIT
        char = text[after]
        if char == "(" and text[after - 1] in _SPACE:
            break
        if char in "<>" and after + 1 < len(text):
            if text[after + 1] != " " and not text[after + 1].isdigit():
                break
            end = after + 1
        elif char in "<>" and not final:
            return WAIT
        elif _RUN.match(char):
            run = _run(text, after, final)
            if run is WAIT:
                return WAIT
            assert isinstance(run, int)
            word = text[after:run]
            stopped = text[end - 1] in ".?"
            joined = word.lower() in FOLLOWERS if stopped else _joins(word)
            if not (open_word or after == end or joined):
                break
            end = run
            open_word = _abbreviated(word)
        elif char in WIDE_FOLLOWERS and after - end < 2 and text[end - 1] not in ".?":
            end = after + 1
            open_word = False
        else:
            break
    return Phrase(end, False)


def _joins(run: str) -> bool:
    """Tell whether a run behind a number and a space is read together with it."""
    return _JOINS.match(run) is not None or run.lower().rstrip(".,:;?") in FOLLOWERS
