"""The spoken side of the cleaner: joins what was kept so that it reads as prose."""

from __future__ import annotations

from typing import Final

from cosyvoice_stream.streaming.mapped_text import MappedText

_PAUSES: Final = frozenset(".!?…,;:。！？，；：、．—–")
_CLOSERS: Final = frozenset("\"'”’»)]}」』）】》")
_CLINGING: Final = frozenset(".,;:!?…)]}”’»。，；：！？、）」』】")
"""Signs with no space in front of them."""


class ProseWriter:
    """Collects kept text and its source positions.

    A space after a word is held until the next visible character, so that ``"good 🙂."`` becomes
    ``"good."`` and not ``"good ."``; a space after a comma or full stop is written at once, because
    a full stop ends a sentence only once the space behind it is seen.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._last = ""
        """Last written character of the whole text."""
        self._visible = ""
        """The last two written visible characters."""
        self._spaces: list[MappedText] = []
        self._spacing = ""
        """What becomes of the run of white space at hand: "drop", "write" or "hold"."""
        self._removed: tuple[int, int] | None = None
        """Source span of what was removed since the last visible character."""
        self._glues = True
        """Whether the neighbours of what was removed may touch."""
        self._cell: tuple[int, int] | None = None
        """Source span of a cell border after which nothing was written yet."""
        self.line_is_empty = True
        """Nothing visible was written since the last line break."""

    def take(self) -> list[MappedText]:
        """Take what has been written."""
        if not self._parts:
            return []
        text = MappedText("".join(self._parts), tuple(self._starts), tuple(self._ends))
        self._parts, self._starts, self._ends = [], [], []
        return [text]

    def text(self, text: str, start: int) -> None:
        """Keep visible characters as they are; `start` is the source index of the first."""
        self._before_visible(text[0])
        self._write(text, range(start, start + len(text)), range(start + 1, start + len(text) + 1))
        self._seen(text)

    def instead(self, text: str, start: int, end: int) -> None:
        """Write characters that stand for a source span."""
        if text.isspace():
            self._space(MappedText.standing_for(" ", start, end))
            return
        self._before_visible(text[0])
        self._write(text, (start,) * len(text), (end,) * len(text))
        self._seen(text)

    def space(self, spaces: str, start: int) -> None:
        """Keep white space within a line, unless what stood before it was removed."""
        self._space(MappedText.of(spaces, start))

    def _space(self, spaces: MappedText) -> None:
        if self._cell is not None:
            return
        if not self._spacing:
            self._spacing = self._judge_space()
        if self._spacing == "write":
            self._write(spaces.text, spaces.starts, spaces.ends)
        elif self._spacing == "hold":
            self._spaces.append(spaces)

    def _judge_space(self) -> str:
        """Decide for a whole run of white space, which may arrive in pieces."""
        if self._removed and (self._spaces or not self._last or self._last.isspace()):
            return "drop"
        return "write" if self._last in _PAUSES and not self._spaces else "hold"

    def removed(self, start: int, end: int, *, glues: bool = False) -> None:
        """Leave out a source span.

        Args:
            start: Index of its first character.
            end: Index after its last character.
            glues: Whether its neighbours may touch, as around the stars of ``un**think**able``.
        """
        self._spacing = ""
        first = start if self._removed is None else self._removed[0]
        self._glues = glues and (self._removed is None or self._glues)
        self._removed = (first, end)

    def cell_border(self, start: int, end: int) -> None:
        """Separate two cells of a table: a comma, once the next cell has text."""
        self._spaces.clear()
        self._spacing = ""
        self._cell = (start, end)

    def line_break(self, start: int, end: int) -> None:
        """Write a line break for a source span, unless nothing was kept of the text before it."""
        self._cell = None
        self._spacing = ""
        if self._removed is not None:
            self._spaces.clear()
            if not self._last:
                return
        self._write_pending()
        self._write("\n", (start,), (end,))
        self._removed = None
        self.line_is_empty = True

    def end_sentence(self, at: int) -> None:
        """Put a full stop after a heading, a list item or a row that has no sentence end."""
        self._cell = None
        self._spacing = ""
        if self.line_is_empty:
            return
        visible = self._visible.rstrip("".join(_CLOSERS)) or self._visible
        if visible[-1:] in _PAUSES:
            return
        self._spaces.clear()
        stop = "。" if visible[-1:] > "\u2e7f" else "."
        self._write(stop, (at,), (at,))
        self._seen(stop)

    def finish(self) -> None:
        """Write the white space that is held: the text ends, or a pause in it begins."""
        if self._removed is None and self._cell is None:
            self._write_pending()

    def _before_visible(self, char: str) -> None:
        self._spacing = ""
        if self._cell is not None:
            if not self.line_is_empty:
                comma = "" if self._last in _PAUSES else "，" if self._last > "\u2e7f" else ","
                separator = comma if comma == "，" else comma + " "
                start, end = self._cell
                self._write(separator, (start,) * len(separator), (end,) * len(separator))
            self._cell = None
            self._removed = None
        elif self._removed is not None:
            if self._spaces and char in _CLINGING:
                self._spaces.clear()
            if not self._spaces and not self._glues and _is_letter(char) and _is_letter(self._last):
                start, end = self._removed
                self._write(" ", (start,), (end,))
            self._removed = None
        self._write_pending()

    def _write_pending(self) -> None:
        for spaces in self._spaces:
            self._write(spaces.text, spaces.starts, spaces.ends)
        self._spaces.clear()

    def _write(
        self, text: str, starts: range | tuple[int, ...], ends: range | tuple[int, ...]
    ) -> None:
        if text:
            self._parts.append(text)
            self._starts.extend(starts)
            self._ends.extend(ends)
            self._last = text[-1]

    def _seen(self, text: str) -> None:
        self._visible = (self._visible + text[-2:])[-2:]
        self.line_is_empty = False


def _is_letter(char: str) -> bool:
    return char.isalnum() and char <= "\u2e7f"
