"""Chinese words that can be read in more than one way, and characters that stand for a syllable.

The data are those of pypinyin. The first call takes about half a second; call it in a thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from cosyvoice_stream.streaming import pinyin

_WORDS: Final = """
行长 hang2 zhang3 xing2 chang2
大夫 dai4 fu5 da4 fu1
地道 di4 dao5 di4 dao4
东西 dong1 xi5 dong1 xi1
便宜 pian2 yi5 bian4 yi2
朝阳 chao2 yang2 zhao1 yang2
孙子 sun1 zi5 sun1 zi3
精神 jing1 shen5 jing1 shen2
大意 da4 yi4 da4 yi5
地方 di4 fang5 di4 fang1
多少 duo1 shao5 duo1 shao3
好事 hao3 shi4 hao4 shi4
分子 fen1 zi3 fen4 zi3
公差 gong1 cha1 gong1 chai1
倒车 dao4 che1 dao3 che1
空地 kong4 di4 kong1 di4
结果 jie2 guo3 jie1 guo3
教学 jiao4 xue2 jiao1 xue2
琢磨 zhuo2 mo2 zuo2 mo5
调配 tiao2 pei4 diao4 pei4
合计 he2 ji4 he2 ji5
当年 dang1 nian2 dang4 nian2
当天 dang1 tian1 dang4 tian1
当日 dang1 ri4 dang4 ri4
应声 ying4 sheng1 ying1 sheng1
数数 shu3 shu4 shuo4 shuo4
本色 ben3 se4 ben3 shai3
口角 kou3 jiao3 kou3 jue2
行道 xing2 dao4 hang2 dao4
同行 tong2 hang2 tong2 xing2
一行 yi4 hang2 yi4 xing2
发行 fa1 xing2 fa1 hang2
重重 chong2 chong2 zhong4 zhong4
转动 zhuan4 dong4 zhuan3 dong4
转向 zhuan3 xiang4 zhuan4 xiang4
看守 kan1 shou3 kan4 shou3
看家 kan1 jia1 kan4 jia1
下行 xia4 xing2 xia4 hang2
难处 nan2 chu4 nan2 chu3
长发 chang2 fa4 zhang3 fa4
干事 gan4 shi5 gan4 shi4
铺盖 pu1 gai5 pu1 gai4
"""
"""Words of two characters whose reading only the sense tells: the common one, then the other."""
_PASSED_OVER: Final = frozenset("一不的了着")
"""A reader knows these from the grammar, or changes their tone by rule."""
_MIN_COUNT: Final = 5
_MIN_SHARE: Final = 0.1
"""A reading counts that this many of the dictionary's phrases with the character have: 发 fà has
132 of 589, 说 yuè 2 of 266."""
_CERTAIN: Final = 0.97
"""Share of its phrases from which a character stands for a reading."""
_COMMON: Final = range(0xB0, 0xD8)
"""Rows of GB 2312 level 1, the 3755 common characters."""


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """A word that can be read in several ways."""

    text: str
    char_start: int
    """Index of its first character in the text."""
    char_end: int
    readings: tuple[str, ...]
    """In the form of a lexicon, ``"hang2 zhang3"``; what a dictionary would choose comes first."""


@cache
def _words() -> Mapping[str, tuple[str, ...]]:
    words = {}
    for line in _WORDS.split("\n"):
        if line:
            word, *syllables = line.split(" ")
            words[word] = (" ".join(syllables[:2]), " ".join(syllables[2:]))
    return words


@cache
def _counts() -> Mapping[str, Counter[str]]:
    """How often each character has each of its readings in the dictionary's phrases."""
    from pypinyin.phrases_dict import phrases_dict

    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for phrase, readings in phrases_dict.items():
        for char, reading in zip(phrase, readings, strict=False):
            counts[char][pinyin.numbered(reading[0]) or reading[0]] += 1
    return counts


@cache
def _common_readings() -> Mapping[str, tuple[str, ...]]:
    """Characters with several common readings, and these readings."""
    found = {}
    for char, of_char in _counts().items():
        least = max(_MIN_COUNT, _MIN_SHARE * of_char.total())
        common = [reading for reading, count in of_char.most_common() if count >= least]
        # A weak second syllable is no other word: 头 in 石头.
        if len({reading[:-1] + reading[-1].replace("5", "") for reading in common}) > 1:
            strong = [reading for reading in common if not _is_weak(reading, common)]
            if len(strong) > 1 and char not in _PASSED_OVER:
                found[char] = tuple(strong)
    return found


def _is_weak(reading: str, others: list[str]) -> bool:
    return reading[-1] == "5" and any(
        other != reading and other[:-1] == reading[:-1] for other in others
    )


def ambiguities(text: str) -> list[Ambiguity]:
    """List the words of a text whose reading is not certain.

    Words that a dictionary of phrases knows are certain (重要, 头发), unless they are known to have
    two senses (行长); characters that stand alone are uncertain if they have several common
    readings. May block for half a second at the first call.
    """
    from pypinyin import Style, lazy_pinyin

    found = []
    for word, start in _segments(text):
        candidates = _words().get(word)
        if candidates is None and len(word) == 1:
            candidates = _common_readings().get(word)
            chosen = lazy_pinyin(word, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False)
            if candidates is not None and chosen[0] in candidates:
                rest = [reading for reading in candidates if reading != chosen[0]]
                candidates = (chosen[0], *rest)
        if candidates is not None:
            found.append(Ambiguity(word, start, start + len(word), candidates))
    return found


def _segments(text: str) -> Iterator[tuple[str, int]]:
    """Words of the dictionary and single characters, with their places."""
    from pypinyin.seg.mmseg import seg

    start = 0
    single = ""
    for part in seg.cut(text):
        # The dictionary lacks words that are read as their characters are: 东西.
        if single and single + part in _words():
            yield single + part, start - 1
            single = ""
        else:
            if single:
                yield single, start - 1
            single = part if len(part) == 1 else ""
            if not single:
                yield part, start
        start += len(part)
    if single:
        yield single, start - 1


@cache
def homophones() -> Mapping[str, str]:
    """Characters by the syllable that they stand for, always or nearly so: ``"hang2"`` → 航.

    For engines that speak Chinese and take no pinyin. May block for half a second at the first
    call.
    """
    found: dict[str, tuple[bool, int, str]] = {}
    for char in _common_characters():
        counts = _counts().get(char)
        if counts is None:
            continue
        syllable, count = counts.most_common(1)[0]
        certain = count / counts.total() >= _CERTAIN
        found[syllable] = max(found.get(syllable, (False, 0, "")), (certain, count, char))
    return {syllable: char for syllable, (_, _, char) in found.items()}


def _common_characters() -> Iterator[str]:
    for row in _COMMON:
        for column in range(0xA1, 0xFF):
            with suppress(UnicodeDecodeError):
                yield bytes((row, column)).decode("gb2312")
