"""Traditional Chinese characters → simplified ones, with OpenCC's tables."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from cosyvoice_stream.streaming.mapped_text import MappedText

_TABLES: Final = "dictionary"
"""Folder in the package `opencc`: lines of a key, a tab, and its forms, the usual one first."""


class _Tables(NamedTuple):
    characters: dict[int, str]
    phrases: dict[str, str]
    """Words whose characters are not simplified one by one."""
    prefixes: frozenset[str]
    """Proper beginnings of them."""
    start: re.Pattern[str]
    """A character that begins one of them."""
    longest: int


def _lines(name: str) -> dict[str, str]:
    text = files("opencc").joinpath(_TABLES, name).read_text(encoding="utf-8")
    pairs = (line.split("\t") for line in text.splitlines() if "\t" in line)
    found = {key: forms.split()[0] for key, forms in pairs}
    # Every character keeps its place, so that positions stay what they are.
    return {key: form for key, form in found.items() if len(key) == len(form)}


@lru_cache(1)
def _tables() -> _Tables:
    """Read the tables: 10 ms, once."""
    phrases = _lines("TSPhrases.txt")
    return _Tables(
        characters={ord(key): form for key, form in _lines("TSCharacters.txt").items()},
        phrases=phrases,
        prefixes=frozenset(key[:size] for key in phrases for size in range(1, len(key))),
        start=re.compile("[" + "".join(sorted({key[0] for key in phrases})) + "]"),
        longest=max(map(len, phrases)),
    )


class Simplifier:
    """Writes Chinese text with simplified characters, one for one.

    Characters that depend on their word (乾 in 乾隆 and in 乾淨) wait for it. It would spoil
    Japanese text.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        self._text = MappedText("", (), ())

    def push(self, text: MappedText) -> list[MappedText]:
        """Append a fragment and take what no further text can change."""
        self._text = self._text + text if self._text.text else text
        return self._read(final=False)

    def flush(self) -> list[MappedText]:
        """End the text and take the rest. The next push starts a new text."""
        return self._read(final=True)

    def break_here(self) -> list[MappedText]:
        """Take everything so far, as if the text ended here; the text goes on."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> list[MappedText]:
        tables = _tables()
        text = self._text.text
        written: list[str] = []
        pos = 0
        while pos < len(text):
            begin = tables.start.search(text, pos)
            plain = len(text) if begin is None else begin.start()
            written.append(text[pos:plain].translate(tables.characters))
            pos = plain
            if begin is None or (text[pos:] in tables.prefixes and not final):
                break
            size = min(tables.longest, len(text) - pos)
            while size > 1 and text[pos : pos + size] not in tables.phrases:
                size -= 1
            word = text[pos : pos + size]
            written.append(tables.phrases.get(word) or word.translate(tables.characters))
            pos += size
        done = self._text[:pos]
        self._text = self._text[pos:]
        return [MappedText("".join(written), done.starts, done.ends)] if pos else []
