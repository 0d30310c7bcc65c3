"""Which language a text is in, as far as its script tells, and whether it says anything."""

from __future__ import annotations

import re

# Unicode blocks, written as ranges of a character class. Han and kana are syllables, so each
# character counts; in the other scripts a run of letters is a word and counts once.
_HAN = r"\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA = r"\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SCRIPTS = {
    "Latn": r"[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
    r"\uff21-\uff3a\uff41-\uff5a]+",
    "Hani": f"[{_HAN}]",
    "Kana": f"[{_KANA}]",
    "Hang": r"[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb]+",
    "Bopo": r"[\u3105-\u312f]+",
    "Cyrl": r"[\u0400-\u052f\u1c80-\u1c88\u2de0-\u2dff]+",
    "Grek": r"[\u0370-\u03ff\u1f00-\u1fff]+",
    "Arab": r"[\u0620-\u065f\u066e-\u06d3\u06d5-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]+",
    "Hebr": r"[\u0591-\u05f4\ufb1d-\ufb4f]+",
    "Deva": r"[\u0900-\u0963\u0966-\u097f]+",
    "Beng": r"[\u0980-\u09ff]+",
    "Guru": r"[\u0a00-\u0a7f]+",
    "Gujr": r"[\u0a80-\u0aff]+",
    "Taml": r"[\u0b80-\u0bff]+",
    "Telu": r"[\u0c00-\u0c7f]+",
    "Knda": r"[\u0c80-\u0cff]+",
    "Mlym": r"[\u0d00-\u0d7f]+",
    "Sinh": r"[\u0d80-\u0dff]+",
    "Thai": r"[\u0e01-\u0e3a\u0e40-\u0e5b]+",
    "Laoo": r"[\u0e80-\u0eff]+",
    "Tibt": r"[\u0f00-\u0fff]+",
    "Mymr": r"[\u1000-\u109f]+",
    "Geor": r"[\u10a0-\u10ff\u1c90-\u1cbf]+",
    "Armn": r"[\u0531-\u058f]+",
    "Ethi": r"[\u1200-\u139f]+",
    "Khmr": r"[\u1780-\u17ff]+",
    "Mong": r"[\u1800-\u18af]+",
}
_LANGUAGE_OF = {
    "Hani": "zh",
    "Kana": "ja",
    "Hang": "ko",
    "Bopo": "zh",
    "Cyrl": "ru",
    "Grek": "el",
    "Arab": "ar",
    "Hebr": "he",
    "Deva": "hi",
    "Beng": "bn",
    "Guru": "pa",
    "Gujr": "gu",
    "Taml": "ta",
    "Telu": "te",
    "Knda": "kn",
    "Mlym": "ml",
    "Sinh": "si",
    "Thai": "th",
    "Laoo": "lo",
    "Tibt": "bo",
    "Mymr": "my",
    "Geor": "ka",
    "Armn": "hy",
    "Ethi": "am",
    "Khmr": "km",
    "Mong": "mn",
}
_RUN = re.compile("|".join(f"(?P<{name}>{runs})" for name, runs in _SCRIPTS.items()))

# Letters that only one language of a shared script uses.
_OWN_LETTERS = {
    "Cyrl": (
        ("be", re.compile("[ўЎ]")),
        ("sr", re.compile("[љњћђџЉЊЋЂЏ]")),
        ("uk", re.compile("[іїєґІЇЄҐ]")),
        ("kk", re.compile("[әғқңұһӘҒҚҢҰҺ]")),
    ),
    "Arab": (
        ("ur", re.compile("[ٹڈڑںےہھ]")),
        ("fa", re.compile("[پچژگکی]")),
    ),
}

# A keycap emoji is a digit with a variation selector and U+20E3.
_KEYCAP = re.compile("[0-9#*]\ufe0f?\u20e3")
# Letters and digits of any script, except marks that only lengthen or repeat what stands before.
_SPOKEN = re.compile(r"[^\W_\u3005\u3031-\u3035\u309d\u309e\u30fc-\u30fe\uff70]")


def script_weights(text: str) -> dict[str, int]:
    """Count the words of each script of a text.

    Args:
        text: Any text.

    Returns:
        ISO 15924 code of each script that occurs (``"Kana"`` for both kana) to its number of words;
        Han and kana count by character.
    """
    weights: dict[str, int] = {}
    for run in _RUN.finditer(text):
        script = run.lastgroup
        if script is not None:
            weights[script] = weights.get(script, 0) + 1
    return weights


def script_language(text: str) -> str | None:
    """Tell the language of a text from its script.

    A foreign word does not decide: ``"I said 你好 to all of them"`` is Latin, ``"sorry 哈"`` is
    Chinese.

    Args:
        text: Any text; a clause is enough.

    Returns:
        BCP 47 tag of the usual language of the script that most of the text is in, with Han
        together with kana as ``"ja"``. None if that script is Latin, or if there is none.
    """
    weights = script_weights(text)
    latin = weights.pop("Latn", 0)
    if "Kana" in weights and "Hani" in weights:
        weights["Kana"] += weights.pop("Hani")
    if not weights:
        return None
    script = max(weights, key=weights.__getitem__)
    if weights[script] < latin:
        return None
    for language, letters in _OWN_LETTERS.get(script, ()):
        if letters.search(text):
            return language
    return _LANGUAGE_OF[script]


def speaks_any(text: str) -> bool:
    """Tell whether a text holds anything to say: a letter or a digit, not only signs or emoji."""
    spoken = _SPOKEN.search(text)
    if spoken is None:
        return False
    if "\u20e3" in text:
        return _SPOKEN.search(_KEYCAP.sub("", text)) is not None
    return True
