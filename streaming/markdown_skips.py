"""Stretches of text that are left out up to their end, read as they arrive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_LONGEST_TARGET: Final = 2048
_LONGEST_LINE: Final = 200
"""A closing fence is looked for in so many characters of a line."""
_LONGEST_TAIL: Final = 32
_PATH: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/?#&=%+@$.,;:!*_'~|()-"
)
_PATH_TAIL: Final = frozenset(".,;:!?*_'~|")


class Until(Enum):
    """What ends a stretch."""

    NEWLINE = auto()
    FENCE = auto()
    """A line with the fence that opened the code block."""
    TAG = auto()
    """A given tag, in any case."""
    TARGET = auto()
    """The parenthesis that closes the target of a link, or the end of the line."""
    PATH = auto()
    """The last character of a web address; punctuation behind it belongs to the sentence."""


@dataclass
class Skip:
    """A stretch of text that is being left out."""

    until: Until
    sign: str = ""
    """The fence or the tag."""
    depth: int = 0
    """Open parentheses."""
    chars: int = 0

    def read(self, text: str, pos: int, final: bool) -> tuple[int, bool]:
        """Read on.

        Args:
            text: The text seen so far.
            pos: Index of the first character that was not read.
            final: Whether the text is complete.

        Returns:
            Index after what can be left out (`pos` if more text is needed), and whether the
            stretch ends there.
        """
        if self.until is Until.NEWLINE:
            newline = text.find("\n", pos)
            return (len(text), False) if newline < 0 else (newline + 1, True)
        if self.until is Until.FENCE:
            return self._read_code(text, pos, final)
        if self.until is Until.TAG:
            return self._read_to_tag(text, pos, final)
        if self.until is Until.TARGET:
            return self._read_target(text, pos)
        return self._read_path(text, pos, final)

    def _read_code(self, text: str, pos: int, final: bool) -> tuple[int, bool]:
        """Read one line of a code block, or what has arrived of it."""
        newline = text.find("\n", pos)
        if text[pos - 1] == "\n":
            if newline < 0 and len(text) < pos + _LONGEST_LINE and not final:
                return pos, False
            end = len(text) if newline < 0 else newline
            line = text[pos : min(end, pos + _LONGEST_LINE)].strip()
            fence = line.startswith(self.sign) and not line.strip(self.sign[0])
            if fence and end - pos < _LONGEST_LINE:
                return min(end + 1, len(text)), True
        return (len(text) if newline < 0 else newline + 1), False

    def _read_to_tag(self, text: str, pos: int, final: bool) -> tuple[int, bool]:
        found = re.compile(re.escape(self.sign), re.IGNORECASE).search(text, pos)
        if found:
            return found.end(), True
        held = 0 if final else len(self.sign) - 1
        return max(pos, len(text) - held), False

    def _read_target(self, text: str, pos: int) -> tuple[int, bool]:
        for at in range(pos, len(text)):
            char = text[at]
            self.chars += 1
            self.depth += (char == "(") - (char == ")")
            if char == "\n":
                return at, True
            if self.depth == 0 or self.chars >= _LONGEST_TARGET:
                return at + 1, True
        return len(text), False

    def _read_path(self, text: str, pos: int, final: bool) -> tuple[int, bool]:
        end = pos
        for at in range(pos, len(text)):
            char = text[at]
            if char not in _PATH or (char == ")" and self.depth == 0):
                return end, True
            self.depth += (char == "(") - (char == ")")
            if char not in _PATH_TAIL:
                end = at + 1
            elif at - end > _LONGEST_TAIL:
                return end, True
        return end, final
