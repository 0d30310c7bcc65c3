"""A style that no model knows of → the sentences by which each model is told.

CosyVoice 3 was trained on one fixed sentence for each dialect, mood, tempo and loudness, CosyVoice
2 on a request in free words. What a caller writes freely is passed on without control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cosyvoice_stream.types import SPEED_RANGE, VOLUME_RANGE, Style, SynthesisOptions

DIALECTS: Final[Mapping[str, str]] = {
    "mandarin": "普通话",
    "cantonese": "广东话",
    "northeastern": "东北话",
    "gansu": "甘肃话",
    "guizhou": "贵州话",
    "henan": "河南话",
    "hubei": "湖北话",
    "hunan": "湖南话",
    "jiangxi": "江西话",
    "minnan": "闽南话",
    "ningxia": "宁夏话",
    "shanxi": "山西话",
    "shaanxi": "陕西话",
    "shandong": "山东话",
    "shanghai": "上海话",
    "sichuan": "四川话",
    "tianjin": "天津话",
    "yunnan": "云南话",
    "changsha": "长沙话",
    "zhengzhou": "郑州话",
    "english": "英语",
    "japanese": "日语",
    "korean": "韩语",
    "german": "德语",
    "french": "法语",
    "spanish": "西班牙语",
    "italian": "意大利语",
    "russian": "俄语",
}
"""Dialects of Chinese, and other languages, with their names in Chinese."""
EMOTIONS: Final[Mapping[str, str]] = {
    "happy": "开心",
    "sad": "伤心",
    "angry": "生气",
    "fearful": "恐惧",
    "surprised": "惊讶",
    "disgusted": "厌恶",
    "calm": "平静",
    "gentle": "温柔",
    "serious": "严肃",
}
PACES: Final = ("slow", "fast")
LOUDNESSES: Final = ("soft", "loud")
_THIRD: Final = {
    "slow": "请用尽可能慢地语速说一句话。",
    "fast": "请用尽可能快地语速说一句话。",
    "soft": "Please say a sentence in a very soft voice.",
    "loud": "Please say a sentence as loudly as possible.",
}
_SECOND: Final = {
    "slow": "很慢的语速",
    "fast": "很快的语速",
    "soft": "很小的声音",
    "loud": "很大的声音",
}
_THIRD_VERSION: Final = 3
_SPEEDS: Final = {"slow": 0.8, "fast": 1.25}
_VOLUMES: Final = {"soft": 0.6, "loud": 1.4}
_CONTROL: Final = re.compile(r"<\|[^|>]{0,40}\|>")
_STOPS: Final = frozenset(".!?。！？")


def instruction(style: Style, version: int) -> str | None:
    """Say a style to a CosyVoice model.

    Args:
        style: Known dialect, emotion, pace and loudness; anything as its text.
        version: Of the model family, 2 or 3.

    Returns:
        Sentences without the prompt's own marks, which the engine sets; None for no style.

    Raises:
        KeyError: A name in `style` is not known.
    """
    third = version >= _THIRD_VERSION
    sentences = _third(style) if third else _second(style)
    free = without_control(style.text or "")
    if free and free[-1] not in _STOPS:
        free += "。" if free[-1] > "\u2e7f" else "."
    sentences += [free] if free else []
    said = ""
    for sentence in sentences:
        apart = said and (said[-1].isascii() or sentence[0].isascii())
        said += (" " if apart else "") + sentence
    return said or None


def _third(style: Style) -> list[str]:
    sentences = []
    if style.dialect is not None:
        sentences.append(f"请用{DIALECTS[style.dialect]}表达。")
    if style.emotion is not None:
        sentences.append(f"请非常{EMOTIONS[style.emotion]}地说一句话。")
    sentences += [_THIRD[name] for name in (style.pace, style.loudness) if name is not None]
    return sentences


def _second(style: Style) -> list[str]:
    """One request for all of it, such as 用四川话、开心的语气、很快的语速说这句话."""
    wishes = []
    if style.dialect is not None:
        wishes.append(DIALECTS[style.dialect])
    if style.emotion is not None:
        wishes.append(f"{EMOTIONS[style.emotion]}的语气")
    wishes += [_SECOND[name] for name in (style.pace, style.loudness) if name is not None]
    return [f"用{'、'.join(wishes)}说这句话。"] if wishes else []


def without_control(text: str) -> str:
    """Take tokens such as ``<|endofprompt|>`` out of what a caller wrote."""
    while (taken := _CONTROL.sub(" ", text)) != text:
        text = taken
    return " ".join(text.split())


def told(options: SynthesisOptions, version: int) -> str | None:
    """All that a CosyVoice model is told about how to speak: style, then instruction."""
    parts = [options.instruct and without_control(options.instruct)]
    if options.style is not None:
        parts.insert(0, instruction(options.style, version))
    return " ".join(part for part in parts if part) or None


def in_numbers(options: SynthesisOptions) -> SynthesisOptions:
    """Turn pace and loudness into speed and volume, for an engine that takes no instructions."""
    style = options.style
    if style is None:
        return options
    speed = options.speed * _SPEEDS.get(style.pace or "", 1.0)
    volume = options.volume * _VOLUMES.get(style.loudness or "", 1.0)
    return replace(
        options,
        speed=min(max(speed, SPEED_RANGE[0]), SPEED_RANGE[1]),
        volume=min(volume, VOLUME_RANGE[1]),
        style=None,
    )
