"""What a sign within a line is: emphasis, link, tag, entity, address, or a character to be read.

Pure functions of the text around one position. `WAIT` says that more text decides; every look-ahead
is bounded, and what is too long is text.
"""

from __future__ import annotations

import html
import re
from html.entities import html5
from typing import Final, NamedTuple

from cosyvoice_stream.streaming.emoji import (
    BOX_DRAWING,
    EMOJI,
    INVISIBLE,
    KEYCAP,
    ZERO_WIDTH_JOINER,
)

WAIT: Final = -1
"""More text must be seen."""
NO: Final = 0
"""It is no markup."""

LONGEST_LABEL: Final = 120
"""Characters between ``[`` and ``]``."""
_LONGEST_TAG: Final = 300
_LONGEST_HOST: Final = 253  # RFC 1035 section 2.3.4, without the dots at both ends
LONGEST_RUN: Final = 32

SPOKEN_TAGS: Final = frozenset(("strong", "laughter", "breath"))
"""Tags that a speech model reads as style; they stay in the text."""
HIDDEN_TAGS: Final = frozenset(
    ("think", "thinking", "thought", "reasoning", "reflection", "scratchpad", "script", "style")
)
"""Tags whose content is not for the listener."""
SENTENCE_TAGS: Final = frozenset(
    ("/p", "/li", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6", "/tr", "/blockquote", "/dt", "/dd")
)
BREAK_TAGS: Final = frozenset(("br", "hr", "p", "div", "/div", "li", "tr", "ul", "ol", "table"))
CELL_TAGS: Final = frozenset(("/td", "/th"))
_INLINE_TAGS: Final = frozenset(
    (
        *("a", "abbr", "audio", "b", "big", "blockquote", "body", "button", "caption", "center"),
        *("cite", "code", "col", "colgroup", "dd", "del", "details", "dfn", "dl", "dt", "em"),
        *("figcaption", "figure", "font", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("head", "header", "html", "i", "iframe", "img", "input", "ins", "kbd", "label", "link"),
        *("main", "mark", "meta", "nav", "ol", "picture", "pre", "q", "rp", "rt", "ruby", "s"),
        *("samp", "section", "small", "source", "span", "strike", "sub", "summary", "sup", "svg"),
        *("tbody", "td", "tfoot", "th", "thead", "title", "tt", "u", "ul", "var", "video", "wbr"),
        *("article", "aside", "final", "answer", "response", "output"),
    )
)
TAGS: Final = _INLINE_TAGS | HIDDEN_TAGS | {name for name in BREAK_TAGS if name[0] != "/"}

_URL_START: Final = (
    r"(?<![A-Za-z0-9])(?:https?://|ftp://|www\.|(?:h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?"
    r"|f(?:t(?:p(?::/?)?)?)?|w(?:ww?)?)\Z)"
)
SPECIAL: Final = re.compile(
    rf"{KEYCAP}|[0-9#*]\ufe0f?\Z|(?<=[\s\[(>|*_])!(?:\[|\Z)|[^\S\n]+|\n|[*_~`\[\]<>&|\\#【]"
    rf"|[{EMOJI}{BOX_DRAWING}{INVISIBLE}{ZERO_WIDTH_JOINER}]|(?i:{_URL_START})"
)
"""Where plain text ends; what may be the start of something at the end of the buffer counts."""

_NAME: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,15})")
_ATTRIBUTES: Final = re.compile(
    r"""(?:\s+[A-Za-z_:@][\w:.-]*\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>]+))*(?:\s+[a-z]+)?\s*/?>"""
)
_CONTROL: Final = re.compile(r"<\|[\w .:-]{1,40}\|>")
_CONTROL_START: Final = re.compile(r"<\|[\w .:-]{0,40}\|?\Z")
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ENTITY_START: Final = re.compile(
    r"&(?:#[0-9]{0,7}|#[xX][0-9a-fA-F]{0,6}|[A-Za-z][A-Za-z0-9]{0,31})?\Z"
)
_SCHEME: Final = re.compile(r"(?:https?://|ftp://)(?:www\.)?|www\.", re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]{1,5})?")
_CITED: Final = re.compile(r"\^[^\]\s]{1,32}|[1-9][0-9]{0,2}(?:\s?[,–-]\s?[1-9][0-9]{0,2}){0,8}")
_SOURCE_MARK: Final = re.compile(r"【[0-9]{1,4}(?::[0-9]{1,4})?†[^】\n]{0,60}】")


class Bracket(NamedTuple):
    """What a ``[`` opens."""

    kind: str
    """``"link"``, ``"cited"`` (a footnote mark), ``"text"`` or ``"wait"``."""
    closing: int = 0
    """Index of its ``]``."""


def bracket(text: str, pos: int, final: bool) -> Bracket:
    """Tell what the ``[`` at `pos` opens; only a ``]`` that a ``(`` follows makes a link."""
    depth = 0
    stop = min(len(text), pos + LONGEST_LABEL)
    closing = text.rfind("]", pos, stop)
    if closing < 0:
        newline = text.find("\n", pos, stop) >= 0
        return Bracket("text" if newline or final or stop == pos + LONGEST_LABEL else "wait")
    for at in range(pos, stop):
        char = text[at]
        if char == "\n":
            return Bracket("text")
        depth += (char == "[") - (char == "]")
        if depth == 0:
            if at + 1 == len(text) and not final:
                return Bracket("wait")
            cited = _CITED.fullmatch(text, pos + 1, at) is not None
            if text[at + 1 : at + 2] == "(":
                return Bracket("link", at)
            return Bracket("cited" if cited else "text", at)
    return Bracket("wait" if stop < pos + LONGEST_LABEL and not final else "text")


def is_citation(text: str, pos: int, closing: int) -> bool:
    """Tell whether what stands between brackets is only the number of a source."""
    return _CITED.fullmatch(text, pos + 1, closing) is not None


def emphasis(text: str, pos: int, end: int, opened: bool) -> str:
    """Tell what a run of one of ``* _ ~`` is.

    Args:
        text: The text; the characters at ``pos - 1`` and `end` must be known (or the text ends).
        pos: Index of the first sign.
        end: Index after the last one.
        opened: Whether such a run is open.

    Returns:
        ``"open"``, ``"close"`` or ``"text"``.
    """
    sign, length = text[pos], end - pos
    before, behind = text[pos - 1], text[end : end + 1] or "\n"
    if before.isspace() and behind.isspace():
        return "close" if length > 2 else "text"
    if sign == "~" and length == 1:
        return "text"
    word_before, word_behind = _is_word(before), _is_word(behind)
    if sign == "_" and word_before and word_behind:
        return "text"  # snake_case
    if word_before and word_behind and not opened:
        return "text"  # 2*3, x**2
    if opened and not before.isspace():
        return "close"
    if behind.isspace() or (word_before and sign != "*"):
        return "close" if length > 1 else "text"  # 5* hotel
    if length > 1:
        return "open"
    if before in ")]" or (sign == "_" and not (behind.isalnum() or behind in "*\"'“(")):
        return "text"  # (a)*(b), ^_^
    return "text" if word_before and word_behind else "open"


def _is_word(char: str) -> bool:
    """Tell whether emphasis cannot start or end next to a character: a letter that needs spaces."""
    return char.isalnum() and char <= "\u2e7f"


def tag(text: str, pos: int, final: bool) -> tuple[int, str]:
    """Read the HTML tag, comment start or control token at `pos`.

    Returns:
        Index after it and its lower-case name (``"/b"`` for an end tag, ``"!--"``, ``"|"``); or
        `WAIT` or `NO` and "".
    """
    if pos + 1 == len(text):
        return (NO if final else WAIT), ""
    sign = text[pos + 1]
    if sign == "|":
        control = _CONTROL.match(text, pos)
        if control:
            return control.end(), "|"
        return (WAIT if _CONTROL_START.match(text, pos) and not final else NO), ""
    if sign == "!":
        if text.startswith("<!--", pos):
            return pos + 4, "!--"
        return (WAIT if "<!--".startswith(text[pos : pos + 4]) and not final else NO), ""
    name = _NAME.match(text, pos)
    if name is None:
        return (WAIT if text[pos + 1 :] == "/" and not final else NO), ""
    if name.end() == len(text):
        return (NO if final else WAIT), ""
    known = name[1].lower()
    if known in ("http", "https", "ftp", "mailto", "www") and text[name.end()] in ":.":
        return (name.end() + 1 if known == "mailto" else pos + 1), "address"
    if known not in TAGS:
        return NO, ""
    attributes = _ATTRIBUTES.match(text, name.end(), pos + _LONGEST_TAG)
    if attributes:
        return attributes.end(), ("/" if text[pos + 1] == "/" else "") + known
    if final or text[name.end()] not in " \t\n/" or len(text) >= pos + _LONGEST_TAG:
        return NO, ""
    # "a <b and c": words without "=" are not the attributes of a tag that still arrives.
    arrived = text[name.end() : pos + _LONGEST_TAG]
    plausible = "<" not in arrived and ">" not in arrived
    plausible = plausible and ("=" in arrived or len(arrived.split()) <= 1)
    return (WAIT if plausible else NO), ""


def entity(text: str, pos: int, final: bool) -> tuple[int, str]:
    """Read the HTML entity at `pos`: index after it and what it stands for, or `WAIT` or `NO`."""
    found = _ENTITY.match(text, pos)
    if found is None:
        return (WAIT if _ENTITY_START.match(text, pos) and not final else NO), ""
    name = found[0][1:]
    if name[0] != "#" and name not in html5:
        return NO, ""
    return found.end(), html.unescape(found[0])


def address(text: str, pos: int, final: bool) -> tuple[int, int]:
    """Find the host in the web address at `pos`.

    Returns:
        Indices of the first character of the host and after its last one, or `WAIT` or `NO` twice.
    """
    scheme = _SCHEME.match(text, pos)
    if scheme is None:
        return NO, NO
    host = _HOST.match(text, scheme.end(), scheme.end() + _LONGEST_HOST)
    reached = host.end() if host else scheme.end()
    if text[reached : reached + 2] in ("", ":") and not final:
        return WAIT, WAIT
    if host is None:
        return NO, NO
    end = scheme.end() + len(host[0].rstrip("._-"))
    return (scheme.end(), end) if end > scheme.end() else (NO, NO)


def source_mark(text: str, pos: int, final: bool) -> int:
    """Read a ``【4†source】`` mark: index after it, or `WAIT` or `NO`."""
    found = _SOURCE_MARK.match(text, pos)
    if found:
        return found.end()
    arriving = text[pos + 1 : pos + 74]
    undecided = len(arriving) < 72 and "】" not in arriving and "\n" not in arriving
    undecided = undecided and (not arriving or arriving[0] in "0123456789")
    return WAIT if undecided and not final else NO
