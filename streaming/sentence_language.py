"""Which language the sentence is in that is being read, from as little of it as decides."""

from __future__ import annotations

import re
from typing import Final

from cosyvoice_stream.streaming.languages import script_language
from cosyvoice_stream.streaming.latin_languages import latin_language

_LOOK_AHEAD: Final = 16
"""Characters behind a number that may tell the language of its sentence."""
_CERTAIN_MARGIN: Final = 2.5
"""Words of one language more than of any other, in one sentence."""
_LONGEST: Final = 160
"""Characters of a sentence that are looked at."""
_SENTENCE_END: Final = re.compile(r"[。！？!?\n]|\.(?=\s)")
_LATIN_WORDS: Final = re.compile(r"[A-Za-z\u00c0-\u024f]{2,}")
_CODES: Final = re.compile(
    r"[A-Za-z0-9._/:-]*[0-9@/][A-Za-z0-9@._/:%?&=-]*|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
)
"""Addresses, versions and model codes, which are the same in every language."""
_CHINESE: Final = re.compile("[的了是在和与有我你他这那不吗呢吧把被从向给让比很都也就还请]")
"""Characters of grammar: even one among foreign words makes a sentence Chinese."""
_WIDE_SIGN: Final = re.compile("[、。，：；！？（）《》]")
_CANTONESE: Final = re.compile("[嘅咗喺唔哋啲嚟冇乜嘢佢咁啱嗰咩嘥攞瞓]")


class SentenceLanguage:
    """Follows a text and tells the language at any place of it.

    Args:
        fixed: BCP 47 tag that holds for everything, or None.
    """

    def __init__(self, fixed: str | None = None) -> None:
        self._fixed = None if fixed is None else _reading_language(fixed)
        self._sentence = ""
        self._stopped = False
        """A full stop was the last character; white space behind it ends the sentence."""
        self._decided: str | None = None
        """Of this sentence, by what was read of it."""
        self._previous: str | None = None
        self.certain: set[str] = set()
        """Languages in Latin script that sentences were in beyond doubt."""

    def pass_by(self, text: str) -> None:
        """Note text that has been read."""
        if self._fixed is not None:
            return
        pos = 0
        if self._stopped and text[:1].isspace():
            self._end_sentence()
        self._stopped = text[-1:] == "."
        for end in _SENTENCE_END.finditer(text):
            self._sentence += text[pos : end.end()]
            self._end_sentence()
            pos = end.end()
        room = _LONGEST - len(self._sentence)
        self._sentence += text[pos : pos + max(0, room)]

    def end(self) -> None:
        """Note that the text ends, and its last sentence with it."""
        if self._fixed is None:
            self._end_sentence()

    def _end_sentence(self) -> None:
        self._previous = self._of(self._sentence) or self._previous
        if _script(self._sentence) is None:
            certain = latin_language(_CODES.sub(" ", self._sentence), margin=_CERTAIN_MARGIN)
            if certain is not None:
                self.certain.add(certain)
        self._sentence = ""
        self._decided = None

    def at(self, text: str, pos: int, end: int, final: bool) -> str | None:
        """Tell the language at ``text[pos:end]``; None if more text must be seen.

        The sentence in front of it decides if it can, else the characters behind it, else the
        sentence before.
        """
        if self._fixed is not None:
            return self._fixed
        if self._decided is None:
            before = self._sentence + text[pos:end]
            self._decided = self._settled(before)
        if self._decided is not None:
            return self._decided
        stop = min(len(text), end + _LOOK_AHEAD)
        ended = _SENTENCE_END.search(text, end, stop)
        if ended is None and stop < end + _LOOK_AHEAD and not final:
            return None
        around = before + text[end : ended.end() if ended else stop]
        return self._of(around) or self._previous or ("zh" if _WIDE_SIGN.search(around) else "en")

    def _settled(self, before: str) -> str | None:
        """The language, if what follows will hardly change it."""
        script = _script(before)
        if script is not None and script != "zh":
            return script
        if script == "zh":
            if _CANTONESE.search(before):
                return "yue"
            return self._previous if self._previous in ("zh", "ja", "yue") else None
        if len(_LATIN_WORDS.findall(before)) < 2:
            return None
        language = latin_language(_CODES.sub(" ", before), margin=1.5)
        if language is None and self._previous not in (None, "zh", "ja", "yue", "ko"):
            likely = latin_language(_CODES.sub(" ", before))
            return self._previous if likely in (None, self._previous) else None
        return language

    def _of(self, sentence: str) -> str | None:
        """The language of a sentence; None if it has none of its own."""
        script = _script(sentence)
        if script == "zh":
            if _CANTONESE.search(sentence):
                return "yue"
            return "ja" if self._previous == "ja" and len(sentence) < 12 else "zh"
        if script is not None:
            return script
        return latin_language(_CODES.sub(" ", sentence))


def _script(text: str) -> str | None:
    """The language that the script tells, without what is written the same everywhere."""
    if text.isascii():
        return None
    script = script_language(_CODES.sub(" ", text))
    return "zh" if script is None and _CHINESE.search(text) else script


def _reading_language(tag: str) -> str:
    """Give the name under which readers are listed: ``zh-HK`` is ``yue``, ``en-GB`` is ``en``."""
    parts = tag.lower().replace("_", "-").split("-")
    if parts[0] == "zh" and ("hk" in parts or "mo" in parts or "yue" in parts):
        return "yue"
    return {"cmn": "zh", "jp": "ja", "cn": "zh"}.get(parts[0], parts[0])
