"""Attribute values of SSML: durations, rates, pitches, volumes."""

from __future__ import annotations

import math
import re
from typing import Final

MAX_BREAK_MS: Final = 10_000
"""Longest pause."""
_TIME: Final = re.compile(r"\+?([0-9]{1,6}(?:\.[0-9]{0,6})?|\.[0-9]{1,6})(ms|s)")
_PERCENT: Final = re.compile(r"([+-]?)([0-9]{1,4}(?:\.[0-9]{0,6})?)%")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,4}(?:\.[0-9]{0,6})?")
_SEMITONES: Final = re.compile(r"([+-][0-9]{1,3}(?:\.[0-9]{0,6})?)st")
_DECIBELS: Final = re.compile(r"([+-][0-9]{1,3}(?:\.[0-9]{0,6})?)dB", re.IGNORECASE)
_BREAKS_MS: Final = {
    "none": 0, "x-weak": 100, "weak": 200, "medium": 400, "strong": 700, "x-strong": 1000,
}  # fmt: skip
_RATES: Final = {
    "x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.35, "x-fast": 1.75,
}  # fmt: skip
_PITCHES: Final = {
    "x-low": -6.0, "low": -3.0, "medium": 0.0, "default": 0.0, "high": 3.0, "x-high": 6.0,
}  # fmt: skip
_VOLUMES: Final = {
    "silent": 0.0, "x-soft": 0.25, "soft": 0.5, "medium": 1.0, "default": 1.0, "loud": 1.4,
    "x-loud": 2.0,
}  # fmt: skip


def break_ms(time: str | None, strength: str | None) -> float | None:
    """Length of a pause in milliseconds, not bounded; None if a value is wrong."""
    if time is not None:
        found = _TIME.fullmatch(time.strip())
        return None if found is None else float(found[1]) * (1000 if found[2] == "s" else 1)
    return float(_BREAKS_MS["medium"]) if strength is None else _BREAKS_MS.get(strength.strip())


def rate(text: str) -> float | None:
    """Tempo factor: ``fast``, ``120%``, ``+20%``, ``1.2``; None if it is wrong."""
    factor = _RATES.get(text.strip())
    if factor is None:
        factor = _share(text)
    if factor is None and _NUMBER.fullmatch(text.strip()):
        factor = float(text)
    return factor if factor is not None and factor > 0 else None


def pitch(text: str) -> float | None:
    """Shift in semitones: ``high``, ``+2st``, ``-10%``; None if it is wrong or in hertz."""
    named = _PITCHES.get(text.strip())
    if named is not None:
        return named
    if found := _SEMITONES.fullmatch(text.strip()):
        return float(found[1])
    factor = _share(text)
    return None if factor is None or factor <= 0 else 12 * math.log2(factor)


def volume(text: str) -> float | None:
    """Gain factor: ``loud``, ``+6dB``, ``50`` (of 100), ``+10%``; None if it is wrong."""
    named = _VOLUMES.get(text.strip())
    if named is not None:
        return named
    if found := _DECIBELS.fullmatch(text.strip()):
        return float(10 ** (float(found[1]) / 20))
    factor = _share(text)
    if factor is None and _NUMBER.fullmatch(text.strip()):
        factor = float(text) / 100
    return None if factor is None or factor < 0 else factor


def _share(text: str) -> float | None:
    """``120%`` and ``+20%`` are both 1.2."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        return None
    share = float(found[2]) / 100
    return share if not found[1] else 1 + share if found[1] == "+" else 1 - share
