"""What the start of a line says: heading, list item, quotation, table, rule, code fence."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from cosyvoice_stream.streaming.emoji import BOX_BARS, BOX_DRAWING

LONGEST_INDENT: Final = 64
_LONGEST_RULE: Final = 400
_LONGEST_INFO: Final = 200
_LONGEST_LABEL: Final = 64

_RULE_SIGNS: Final = re.compile(rf"[-*_=~+|: \t\r{BOX_DRAWING}]*")
_RULE_STROKES: Final = re.compile(rf"[-*_=~{BOX_DRAWING}]")
_INDENT: Final = re.compile(r"[ \t\u3000]*")
_FENCE: Final = re.compile(r"(`{3,32}|~{3,32})([^\n]{0,200})")
_HEADING: Final = re.compile(r"#{1,6}(?=[ \t\n]|\Z)")
_BULLET: Final = re.compile(r"[-*+·](?=[ \t\u3000\n])")
_GLYPHS: Final = "•‣◦▪●○■□▶➤✦"
_NUMBER: Final = re.compile(r"[0-9]{1,3}[.)](?=[ \t])")
_NUMBER_START: Final = re.compile(r"[0-9]{1,3}[.)]?\Z")
_CHECKBOX: Final = re.compile(r"\[[ xX]\](?=[ \t])")
_LABEL: Final = re.compile(r"\[([^\]\n]{1,64})\]:[ \t]{0,8}")
_TARGET: Final = re.compile(r"(?:<|/|#|\.|https?:|www\.|mailto:)", re.IGNORECASE)


class Start(Enum):
    """How a line, or what follows a marker in it, starts."""

    TEXT = auto()
    BLANK = auto()
    MARKER = auto()
    """A bullet, a check box or a quotation sign: left out, and another marker may follow."""
    NUMBER = auto()
    """The number of a list item, which is spoken."""
    HEADING = auto()
    ROW = auto()
    RULE = auto()
    """A line of signs only, with its line break."""
    FENCE = auto()
    """The first line of a code block, with its line break."""
    NOTE = auto()
    """The label of a footnote, whose text is spoken."""
    TARGET = auto()
    """The label of an address that the text refers to; the whole line is left out."""


class Prefix(NamedTuple):
    """What was found at the start of a line."""

    start: Start
    begin: int
    """Index of the first character that is not indentation."""
    end: int
    """Index after the prefix."""
    fence: str = ""
    """The fence that opened a code block."""
    is_item: bool = False


def line_prefix(text: str, pos: int, final: bool, *, is_item: bool) -> Prefix | None:
    """Read the start of a line.

    Args:
        text: The text seen so far.
        pos: Index of the first character of the line, or of what follows a marker in it.
        final: Whether the text is complete.
        is_item: Whether a list marker stands before `pos` in this line.

    Returns:
        One prefix; None if more text decides.
    """
    indent = _INDENT.match(text, pos, pos + LONGEST_INDENT)
    begin = indent.end() if indent else pos
    if begin == len(text):
        return Prefix(Start.TEXT, begin, begin) if final else None
    char = text[begin]
    if char in "\r\n":
        return Prefix(Start.BLANK, begin, begin)
    if char in "`~":
        fence = _fence(text, begin, final)
        return _rule(text, begin, final) if fence and char == "~" and not fence.fence else fence
    if char in "-*_=+|:" or "\u2500" <= char <= "\u259f":
        return _signs(text, begin, final)
    if char == "#":
        return _heading(text, begin, final)
    if char == ">":
        return Prefix(Start.MARKER, begin, begin + 1)
    if char == "[":
        return _label(text, begin, final, is_item=is_item)
    if char in _GLYPHS:
        return Prefix(Start.MARKER, begin, begin + 1, is_item=True)
    if "0" <= char <= "9" and not is_item:
        number = _NUMBER.match(text, begin)
        if number:
            return Prefix(Start.NUMBER, begin, number.end(), is_item=True)
        if not final and _NUMBER_START.match(text, begin):
            return None
    return Prefix(Start.TEXT, begin, begin)


def continues_item(text: str, pos: int, final: bool) -> bool | None:
    """Tell whether the line after a line break goes on with a list item; None: more text decides.

    Args:
        text: The text seen so far.
        pos: Index after the line break.
        final: Whether the text is complete.
    """
    indent = _INDENT.match(text, pos, pos + LONGEST_INDENT)
    begin = indent.end() if indent else pos
    if begin == len(text):
        return False if final else None
    return text[begin].islower()


def _fence(text: str, begin: int, final: bool) -> Prefix | None:
    """Read the first line of a code block; `Start.TEXT` if it is something else."""
    nothing = Prefix(Start.TEXT, begin, begin)
    fence = _FENCE.match(text, begin)
    if fence is None:
        run_end = begin
        while run_end < len(text) and text[run_end] == text[begin]:
            run_end += 1
        return None if run_end == len(text) and not final else nothing
    if fence[1][0] == "`" and "`" in fence[2]:
        return nothing
    end = fence.end()
    if end < len(text):
        end += text[end] == "\n"
    elif not final and len(fence[2]) < _LONGEST_INFO:
        return None
    return Prefix(Start.FENCE, begin, end, fence=fence[1])


def _rule(text: str, begin: int, final: bool) -> Prefix | None:
    """Read a line of signs; `Start.TEXT` if it is something else, None if more text decides."""
    signs = _RULE_SIGNS.match(text, begin, begin + _LONGEST_RULE)
    end = signs.end() if signs else begin
    if end == len(text) and not final and end - begin < _LONGEST_RULE:
        return None
    ends_line = end == len(text) or text[end] == "\n" or end - begin == _LONGEST_RULE
    if ends_line and len(_RULE_STROKES.findall(text, begin, end)) >= 3:
        return Prefix(Start.RULE, begin, min(end + (text[end : end + 1] == "\n"), len(text)))
    return Prefix(Start.TEXT, begin, begin)


def _signs(text: str, begin: int, final: bool) -> Prefix | None:
    """Read a rule, a bullet or a row of a table."""
    rule = _rule(text, begin, final)
    if rule is None or rule.start is Start.RULE:
        return rule
    if _BULLET.match(text, begin):
        return Prefix(Start.MARKER, begin, begin + 1, is_item=True)
    if text[begin] == "|" or text[begin] in BOX_BARS:
        return Prefix(Start.ROW, begin, begin)
    return rule


def _heading(text: str, begin: int, final: bool) -> Prefix | None:
    heading = _HEADING.match(text, begin)
    if heading is None:
        return Prefix(Start.TEXT, begin, begin)
    if heading.end() == len(text) and not final:
        return None
    return Prefix(Start.HEADING, begin, heading.end())


def _label(text: str, begin: int, final: bool, *, is_item: bool) -> Prefix | None:
    """Read a check box, a footnote label or the label of an address."""
    nothing = Prefix(Start.TEXT, begin, begin)
    checkbox = _CHECKBOX.match(text, begin) if is_item else None
    if checkbox:
        return Prefix(Start.MARKER, begin, checkbox.end(), is_item=True)
    label = _LABEL.match(text, begin)
    if label and label[1].startswith("^"):
        return Prefix(Start.NOTE, begin, label.end())
    if label and label.end() + 8 > len(text) and not final:
        return None
    if label:
        is_target = _TARGET.match(text, label.end())
        return Prefix(Start.TARGET, begin, label.end()) if is_target else nothing
    # The label may still be arriving.
    closing = text.find("]", begin, begin + _LONGEST_LABEL + 2)
    newline = text.find("\n", begin, begin + _LONGEST_LABEL + 2)
    if final or 0 <= newline < (closing if closing >= 0 else len(text)):
        return nothing
    if closing < 0:
        return None if len(text) < begin + _LONGEST_LABEL + 2 else nothing
    return None if closing + 1 == len(text) else nothing
