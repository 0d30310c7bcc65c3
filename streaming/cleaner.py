"""Markdown, HTML, emoji and addresses in fragments → prose that can be spoken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cosyvoice_stream.streaming import markdown_inline as inline
from cosyvoice_stream.streaming.emoji import (
    BOX_BARS,
    BOX_DRAWING,
    EMOJI,
    INVISIBLE,
    ZERO_WIDTH_JOINER,
)
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.markdown_lines import Start, continues_item, line_prefix
from cosyvoice_stream.streaming.markdown_skips import Skip, Until
from cosyvoice_stream.streaming.prose import ProseWriter

_HIDDEN: Final = re.compile(rf"[{EMOJI}{BOX_DRAWING}{INVISIBLE}]")
_INK: Final = re.compile(rf"[{EMOJI}{BOX_DRAWING}{ZERO_WIDTH_JOINER}]")
_SPACES: Final = re.compile(r"[^\S\n]+")
_CLOSING_HASHES: Final = re.compile(r"#{1,32}[ \t]{0,64}")
_ESCAPED: Final = frozenset("\\`*_{}[]()#+-.!|~<>\n")


@dataclass
class _Line:
    """What the cleaner knows about the line that it reads."""

    at_start: bool = True
    marked: bool = False
    """A marker was left out; the indentation behind it goes too."""
    kind: Start | None = None
    """`Start.HEADING`, `Start.NUMBER` for any list item, `Start.ROW`, or None."""
    table: bool = False
    """A rule row was seen: lines with bars are rows until a blank line."""
    code: int = 0
    """Number of ticks that close the code at hand."""
    autolink: bool = False
    """An address in angle brackets is open."""
    opened: set[str] = field(default_factory=set)
    """Open emphasis."""


class PlainText:
    """Takes the place of a `TextCleaner` where the text is to be spoken as it is."""

    def __init__(self) -> None:
        self._offset = 0

    def push(self, text: str) -> list[MappedText]:
        """Pass a fragment on."""
        mapped = MappedText.of(text, self._offset)
        self._offset += len(text)
        return [mapped] if text else []

    def flush(self) -> list[MappedText]:
        """End the text; nothing was held."""
        self.reset()
        return []

    def break_here(self) -> list[MappedText]:
        """Give what is held; nothing is."""
        return []

    def reset(self) -> None:
        """Start a new text."""
        self._offset = 0


class TextCleaner:
    """Turns what a language model writes into what a person would read aloud, as it arrives.

    Emphasis, heading and list marks, code blocks, the targets of links, HTML tags, emoji, box
    drawing and reasoning are left out; tables are read cell by cell; addresses are cut to their
    host. Text without markup passes unchanged. What a sign is depends on the text alone, not on its
    fragments; the cleaner waits for a bounded number of further characters, and only where they
    matter. Spans in the result are positions in the pushed text.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        # One character of context stands before the text that is still to be read.
        self._text = "\n"
        self._offset = -1  # of _text[0] in the pushed text
        self._prose = ProseWriter()
        self._line = _Line()
        self._skip: Skip | None = None
        self._links: list[int] = []  # closing brackets of open links, in the pushed text

    def push(self, text: str) -> list[MappedText]:
        """Append a fragment and take the text that can be spoken."""
        self._text += text
        self._run(final=False)
        return self._prose.take()

    def flush(self) -> list[MappedText]:
        """End the text and take the rest. The next push starts a new text."""
        self._run(final=True)
        self._prose.finish()
        rest = self._prose.take()
        self.reset()
        return rest

    def break_here(self) -> list[MappedText]:
        """Take everything so far, as if the text ended here; the text goes on."""
        self._run(final=True)
        self._prose.finish()
        return self._prose.take()

    def _run(self, *, final: bool) -> None:
        pos = 1
        while pos < len(self._text):
            if self._skip is not None:
                end = self._leave_out(self._skip, pos, final)
            elif self._line.at_start:
                end = self._start_line(pos, final)
            else:
                end = self._read(pos, final)
            if end == inline.WAIT:
                break
            pos = end
        self._offset += pos - 1
        self._text = self._text[pos - 1 :]

    def _removed(self, start: int, end: int, *, glues: bool = False) -> int:
        self._prose.removed(self._offset + start, self._offset + end, glues=glues)
        return end

    def _keep(self, start: int, end: int) -> int:
        self._prose.text(self._text[start:end], self._offset + start)
        return end

    # Lines

    def _start_line(self, pos: int, final: bool) -> int:
        """Read one prefix of a line; several may follow each other (``> - # Title``)."""
        line = self._line
        prefix = line_prefix(self._text, pos, final, is_item=line.kind is Start.NUMBER)
        if prefix is None:
            return inline.WAIT
        start, begin, end = prefix.start, prefix.begin, prefix.end
        kept_indent = start in (Start.TEXT, Start.BLANK) and not line.marked
        if begin > pos and kept_indent:
            self._prose.space(self._text[pos:begin], self._offset + pos)
        if end > (begin if kept_indent else pos) and start is not Start.NUMBER:
            self._removed(pos, end)
        if start is Start.MARKER:
            line.marked = True
            if prefix.is_item:
                line.kind = Start.NUMBER
            return end
        if start is Start.FENCE or start is Start.RULE:
            line.marked = False
            line.kind = None
            line.table |= start is Start.RULE and "|" in self._text[begin:end]
            if start is Start.FENCE:
                self._skip = Skip(Until.FENCE, prefix.fence)
            return end
        if start is Start.TARGET:
            self._skip = Skip(Until.NEWLINE)
            return end
        line.at_start = line.marked = False
        if start is Start.NUMBER:
            line.kind = start
            self._keep(begin, end)
        elif start in (Start.HEADING, Start.ROW):
            line.kind = start
        elif start is Start.BLANK:
            line.table = False
            line.opened.clear()
            line.kind = None
        elif line.table:
            line.kind = Start.ROW
        return end

    def _line_end(self, pos: int, final: bool) -> int:
        """Read a line break at `pos`; headings, items and rows get the full stop that they lack."""
        line = self._line
        goes_on: bool | None = False
        if line.kind is Start.NUMBER:
            goes_on = continues_item(self._text, pos + 1, final)
            if goes_on is None:
                return inline.WAIT
        if line.kind is not None and not goes_on:
            self._prose.end_sentence(self._offset + pos)
            line.kind = None
        self._prose.line_break(self._offset + pos, self._offset + pos + 1)
        line.at_start = True
        line.code = 0
        line.autolink = False
        return pos + 1

    def _leave_out(self, skip: Skip, pos: int, final: bool) -> int:
        end, done = skip.read(self._text, pos, final)
        if done:
            self._skip = None
            if skip.until is Until.NEWLINE or skip.until is Until.FENCE:
                self._line.at_start = True
            elif skip.until is Until.TAG:
                self._line.at_start = self._prose.line_is_empty
        if end > pos:
            return self._removed(pos, end, glues=skip.until in (Until.TARGET, Until.PATH))
        return end if done else inline.WAIT

    # Within a line

    def _read(self, pos: int, final: bool) -> int:
        """Read plain text, or one special sign."""
        text = self._text
        if self._links and self._offset + pos >= self._links[-1]:
            closing = self._links.pop() - self._offset
            if closing == pos:
                self._skip = Skip(Until.TARGET, depth=1)
                return self._removed(pos, pos + 2, glues=True)
            return pos
        stop = self._links[-1] - self._offset if self._links else len(text)
        found = inline.SPECIAL.search(text, pos)
        plain_end = min(stop, found.start() if found else len(text))
        if found is None or plain_end > pos:
            return self._keep(pos, plain_end)
        end = self._special(found[0], pos, final)
        return self._keep(pos, pos + 1) if end == inline.NO else end

    def _special(self, sign: str, pos: int, final: bool) -> int:
        """Read what starts at `pos`; the index after it, `inline.WAIT`, or `inline.NO` for text."""
        text = self._text
        char = sign[0]
        if char.isspace():
            spaces = _SPACES.match(text, pos)
            if spaces is None:
                return self._line_end(pos, final)
            self._prose.space(spaces[0], self._offset + pos)
            return spaces.end()
        if self._line.code and char != "`":
            return inline.NO
        if sign[-1] == "\u20e3" and sign[0] in "0123456789#*":
            return self._removed(pos, pos + len(sign))
        if char in "*_~`":
            return self._signs(char, pos, final)
        if char in "[!":
            return self._bracket(pos, final)
        if char == "<":
            return self._tag(pos, final)
        if char == "&":
            return self._entity(pos, final)
        if char == "\\":
            return self._escape(pos, final)
        if char in BOX_BARS or char == "|":
            return self._bar(pos)
        if char == "#":
            return self._hashes(pos, final)
        if char == "【":
            end = inline.source_mark(text, pos, final)
            return self._removed(pos, end, glues=True) if end > 0 else end
        if char == ">" and self._line.autolink:
            self._line.autolink = False
            return self._removed(pos, pos + 1, glues=True)
        if char in "]>":
            return inline.NO
        return self._address_or_digit(sign, pos, final) if char.isascii() else self._unseen(pos)

    def _signs(self, sign: str, pos: int, final: bool) -> int:
        """Read a run of ticks or of emphasis signs."""
        text, line = self._text, self._line
        end = pos
        while end < len(text) and text[end] == sign and end - pos < inline.LONGEST_RUN:
            end += 1
        behind = text[end : end + 2]
        if not final and (not behind or behind == "\ufe0f"):
            return inline.WAIT
        if sign == "`":
            if line.code not in (0, end - pos):
                return self._keep(pos, end)
            alone = text[pos - 1].isspace() and (not behind or behind[0].isspace())
            line.code = 0 if line.code or alone else end - pos
            return self._removed(pos, end, glues=True)
        run = sign * min(end - pos, 2)
        role = inline.emphasis(text, pos, end, run in line.opened)
        if role == "text":
            return self._keep(pos, end)
        if role == "open":
            line.opened.add(run)
        else:
            line.opened.discard(run)
        return self._removed(pos, end, glues=True)

    def _bracket(self, pos: int, final: bool) -> int:
        """Read what ``[`` or ``![`` opens."""
        text = self._text
        opening = pos + (text[pos] == "!")
        if opening == len(text):
            return inline.NO if final else inline.WAIT
        found = inline.bracket(text, opening, final)
        if found.kind == "wait":
            return inline.WAIT
        if found.kind == "link" and inline.is_citation(text, opening, found.closing):
            self._skip = Skip(Until.TARGET, depth=1)
            return self._removed(pos, found.closing + 2)
        if found.kind == "link":
            self._links.append(self._offset + found.closing)
            return self._removed(pos, opening + 1, glues=text[pos] == "[")
        if found.kind == "cited" and opening == pos:
            return self._removed(pos, found.closing + 1)
        return inline.NO

    def _tag(self, pos: int, final: bool) -> int:
        """Read an HTML tag, a comment, a control token or an address in angle brackets."""
        prose, line = self._prose, self._line
        end, name = inline.tag(self._text, pos, final)
        if end in (inline.WAIT, inline.NO):
            return end
        start, stop = self._offset + pos, self._offset + end
        if name in inline.SENTENCE_TAGS or name in inline.BREAK_TAGS:
            if name in inline.SENTENCE_TAGS:
                prose.end_sentence(start)
            if not prose.line_is_empty:
                prose.line_break(start, stop)
            line.at_start = True
        elif name in inline.CELL_TAGS:
            prose.cell_border(start, stop)
            return end
        elif name == "address":
            line.autolink = True
        elif name == "!--":
            self._skip = Skip(Until.TAG, "-->")
        elif name in inline.HIDDEN_TAGS:
            self._skip = Skip(Until.TAG, f"</{name}>")
        elif name[1:] in inline.HIDDEN_TAGS and prose.line_is_empty:
            line.at_start = True
        return self._removed(pos, end, glues=name != "|")

    def _entity(self, pos: int, final: bool) -> int:
        end, meaning = inline.entity(self._text, pos, final)
        if end > 0 and meaning:
            self._prose.instead(meaning, self._offset + pos, self._offset + end)
        return end

    def _escape(self, pos: int, final: bool) -> int:
        """Read a backslash: the sign behind it is text."""
        behind = self._text[pos + 1 : pos + 2]
        if not behind:
            return inline.NO if final else inline.WAIT
        if behind not in _ESCAPED:
            return inline.NO
        self._removed(pos, pos + 1, glues=True)
        return pos + 1 if behind == "\n" else self._keep(pos + 1, pos + 2)

    def _bar(self, pos: int) -> int:
        """Read a bar, which in a row separates cells."""
        if self._line.kind is Start.ROW:
            self._prose.cell_border(self._offset + pos, self._offset + pos + 1)
            return pos + 1
        return inline.NO if self._text[pos] == "|" else self._removed(pos, pos + 1)

    def _hashes(self, pos: int, final: bool) -> int:
        """Read number signs, which may close a heading, or be a key."""
        text = self._text
        ending = _CLOSING_HASHES.match(text, pos)
        if ending and ending.end() == len(text) and not final:
            return inline.WAIT
        closes = self._line.kind is Start.HEADING and text[pos - 1] in " \t"
        if ending and closes and text[ending.end() : ending.end() + 1] in ("", "\n"):
            return self._removed(pos, ending.end(), glues=True)
        if ending and text[pos + 1 : pos + 3] == "\ufe0f" and not final:
            return inline.WAIT
        return inline.NO

    def _address_or_digit(self, sign: str, pos: int, final: bool) -> int:
        """Read a web address, of which the host is kept, or the digit of a key."""
        text = self._text
        if pos + len(sign) == len(text) and not final:
            return inline.WAIT
        start, end = inline.address(text, pos, final)
        if end <= 0:
            return end
        self._removed(pos, start, glues=True)
        self._keep(start, end)
        if text[end : end + 1] in ("/", "?", "#"):
            self._skip = Skip(Until.PATH)
        return end

    def _unseen(self, pos: int) -> int:
        """Leave out a picture, a line or an invisible character."""
        char = self._text[pos]
        if char == ZERO_WIDTH_JOINER and not _HIDDEN.match(self._text[pos - 1]):
            return inline.NO
        return self._removed(pos, pos + 1, glues=not _INK.match(char))
