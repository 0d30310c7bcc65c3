"""Does a transcript say what is heard in the recording?"""

from __future__ import annotations

import unicodedata
from typing import Final

from cosyvoice_stream.quality import QualityItem
from cosyvoice_stream.streaming.normalizer import Normalizer

MAX_DISAGREEMENT: Final = 0.3
"""Beyond it a cloning engine says other words than it should; a careful recognition of clean
speech errs in less than a tenth."""
_MAX_CHARS: Final = 1000
_ITEM: Final = "transcript"


def disagreement(given: str, heard: str) -> float:
    """Share of the letters that differ between two texts, 0 to 1.

    Case, punctuation and the way of writing numbers do not count; Chinese is compared by its sound,
    so that traditional characters and homophones do not count either. May block for half a second
    at the first Chinese text.
    """
    one, other = _plain(given), _plain(heard)
    longest = max(len(one), len(other))
    return _distance(one, other) / longest if longest else 0.0


def _plain(text: str) -> str:
    normalizer = Normalizer()
    spoken = normalizer.push(text[:_MAX_CHARS]) + normalizer.flush()
    words = unicodedata.normalize("NFKC", "".join(each.text for each in spoken)).casefold()
    if any("\u4e00" <= char <= "\u9fff" for char in words):
        from pypinyin import lazy_pinyin

        words = "".join(lazy_pinyin(words))
    return "".join(char for char in words if char.isalnum())


def _distance(one: str, other: str) -> int:
    """Least number of insertions, deletions and replacements (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, char in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, opposite in enumerate(other, 1):
            change = diagonal + (char != opposite)
            diagonal = row[j]
            row[j] = min(change, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def settle(given: str | None, heard: str | None) -> tuple[str | None, QualityItem | None]:
    """Choose the transcript of a recording.

    Args:
        given: By the caller, if at all.
        heard: By speech recognition; None where there is none, "" where it heard nothing sure.

    Returns:
        The transcript to use, and what the report says about it; None if there is nothing to say.
    """
    if given is None and not heard:
        return None, QualityItem(
            _ITEM, 0.0, "ratio", "warn", "no_transcript",
            "the recording has no transcript",
            "send the words that are said in it: a cloned voice comes closer with them",
        )  # fmt: skip
    if given is None:
        return heard, QualityItem(
            _ITEM, 0.0, "ratio", "warn", "transcribed",
            "the transcript was made by speech recognition",
            "look at it, and send the right words if it is wrong",
        )  # fmt: skip
    if not heard:
        return given, None
    share = disagreement(given, heard)
    if share <= MAX_DISAGREEMENT:
        return given, QualityItem(_ITEM, share, "ratio", "ok")
    return heard, QualityItem(
        _ITEM, share, "ratio", "warn", "transcript_differs",
        f"{share:.0%} of the transcript is not what is heard in the part that is used",
        "what is heard was taken as the transcript; send the right words if it is wrong",
    )  # fmt: skip
