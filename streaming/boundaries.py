"""Where text may be parted: verdicts on one character, from bounded context on both sides.

Every function here is a pure function of the text around one position. When the text seen so far
cannot decide, the verdict is `Kind.WAIT`; more text never changes any other verdict.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from cosyvoice_stream.streaming import abbreviations


class Kind(Enum):
    """What may happen after a character."""

    WAIT = auto()
    """The next characters decide."""
    NONE = auto()
    WEAK = auto()
    """A pause within a sentence."""
    LIST = auto()
    """A pause between the items of an enumeration."""
    SENTENCE = auto()
    PARAGRAPH = auto()


class Verdict(NamedTuple):
    """A `Kind` and the index after the last character that belongs to the text before it."""

    kind: Kind
    end: int


STOPS: Final = ".!?…‼⁇⁈⁉．"
"""Ends of sentences that need the next character: numbers, addresses and abbreviations have them
too."""
FULL_STOPS: Final = "。！？｡؟۔।॥︒"
"""Ends of sentences that mean nothing else."""
COMMAS: Final = ",;:，；：、،؛､"
DASHES: Final = "—–―‒-─"
OPENERS: Final = {
    "(": ")",
    "[": "]",
    "{": "}",
    "<": ">",
    "«": "»",
    "“": "”",
    "„": "“",
    "「": "」",
    "『": "』",
    "（": "）",
    "［": "］",
    "【": "】",
    "〔": "〕",
    "《": "》",
    "〈": "〉",
    "｢": "｣",
}
CLOSERS: Final = frozenset(OPENERS.values())

_ATTACHED: Final = CLOSERS | frozenset("\"'’*_`~")
"""Signs that stay with the end of the sentence before them."""
_MAX_RUN: Final = 32
MAX_SPACE: Final = 64
"""Longest white space that is looked through for a line break or the next word."""
_DOTTED: Final = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_WORD: Final = re.compile(r"[^\W\d_]+")
_BEFORE_TOKEN: Final = frozenset("([{\"'“„«*_—–，。、（「『：；")
_CURRENCY: Final = frozenset("$€£¥₹₩₽¢￥")
_UNITS: Final = frozenset("%‰°℃℉€£¥")


def is_wide(char: str) -> bool:
    """Tell whether a character is of a script that is written without spaces (Han, kana, …)."""
    return char > "\u2e7f" and char.isalnum()


def next_visible(text: str, pos: int, final: bool) -> str | None:
    """Find the first character that is not white space.

    Args:
        text: The text seen so far.
        pos: Where to start.
        final: Whether the text is complete.

    Returns:
        The character; "" at the end of a complete text or after too much white space; None if more
        text must be seen.
    """
    stop = pos + MAX_SPACE
    for at in range(pos, min(len(text), stop)):
        if not text[at].isspace():
            return text[at]
    return "" if final or len(text) >= stop else None


def next_word(text: str, pos: int, final: bool) -> str | None:
    """Read the word after white space.

    Returns:
        The word, cut to `abbreviations.LONGEST_WORD` letters; "" if there is none; None if more
        text must be seen.
    """
    first = next_visible(text, pos, final)
    if first is None or not first.isalpha():
        return None if first is None else ""
    while text[pos].isspace():
        pos += 1
    found = _WORD.match(text, pos, pos + abbreviations.LONGEST_WORD)
    word = found.group() if found else ""
    if len(word) < abbreviations.LONGEST_WORD and pos + len(word) == len(text) and not final:
        return None
    return word


def space_verdict(text: str, pos: int, final: bool) -> Verdict:
    """Judge white space after a complete sentence: does a blank line follow?"""
    if text[pos : pos + 1] not in ("\n", "\r"):
        return Verdict(Kind.SENTENCE, pos)
    newlines = 0
    stop = min(len(text), pos + MAX_SPACE)
    for at in range(pos, stop):
        newlines += text[at] == "\n"
        if newlines == 2:
            return Verdict(Kind.PARAGRAPH, pos)
        if not text[at].isspace():
            return Verdict(Kind.SENTENCE, pos)
    if final:
        return Verdict(Kind.PARAGRAPH, pos)
    return Verdict(Kind.WAIT if stop == len(text) else Kind.SENTENCE, pos)


def newline(text: str, start: int, pos: int, line_chars: int, final: bool) -> Verdict:
    """Judge the first white space after a word, in a run that holds a line break.

    A line that is filled up, or a next line in lower case, is prose that was wrapped.

    Args:
        text: The text seen so far.
        start: Start of the clause; nothing before it is looked at.
        pos: Index of the white space.
        line_chars: Characters between the previous line break of the clause and `pos`.
        final: Whether the text is complete.
    """
    first = next_visible(text, pos, final)
    run_end = pos
    newlines = 0
    while run_end < min(len(text), pos + MAX_SPACE) and text[run_end].isspace():
        newlines += text[run_end] == "\n"
        run_end += 1
    if newlines >= 2:
        return Verdict(Kind.PARAGRAPH, pos)
    if first is None:
        return Verdict(Kind.WAIT, pos)
    if newlines == 0 or text[pos - 1 : pos] in tuple(",，、") and pos > start:
        return Verdict(Kind.NONE, pos)
    if first.islower() or (line_chars >= 60 and first.isalnum()):
        return Verdict(Kind.NONE, pos)
    return Verdict(Kind.SENTENCE, pos)


def _run_end(text: str, pos: int, members: str | frozenset[str], longest: int) -> int:
    stop = min(len(text), pos + longest)
    while pos < stop and text[pos] in members:
        pos += 1
    return pos


def stop(text: str, start: int, pos: int, final: bool) -> Verdict:
    """Judge a full stop, question mark, exclamation mark or ellipsis that others may use too.

    Args:
        text: The text seen so far.
        start: Start of the clause; nothing before it is looked at.
        pos: Index of the sign.
        final: Whether the text is complete.
    """
    if pos > start and text[pos - 1] in STOPS:
        return Verdict(Kind.NONE, pos)  # within a run that was judged at its start
    end = _run_end(text, pos, STOPS, _MAX_RUN)
    after = _run_end(text, end, _ATTACHED, _MAX_RUN)
    if after == len(text):
        return space_verdict(text, after, final) if final else Verdict(Kind.WAIT, after)
    signs = text[pos:end]
    ellipsis = signs == "…" * len(signs) or (len(signs) > 1 and signs == "." * len(signs))
    follower = text[after]
    if not follower.isspace():
        return _stop_without_space(text, start, pos, end, after, ellipsis)
    if signs == "." and after == end:
        goes_on = _abbreviated(text, start, pos, final)
        if goes_on is None:
            return Verdict(Kind.WAIT, after)
        if goes_on:
            return Verdict(Kind.NONE, after)
    elif ellipsis or after > end:
        first = next_visible(text, after, final)
        if first is None:
            return Verdict(Kind.WAIT, after)
        if first.islower():
            return Verdict(Kind.WEAK if ellipsis else Kind.NONE, after)
    return space_verdict(text, after, final)


def _stop_without_space(
    text: str, start: int, pos: int, end: int, after: int, ellipsis: bool
) -> Verdict:
    """Judge a stop at which the text goes on at once: ``3.14``, ``example.com``, ``好!我``."""
    follower = text[after]
    if ellipsis:
        return Verdict(Kind.WEAK if follower.isalpha() else Kind.NONE, after)
    if after > end or not is_wide(follower) or pos == start:
        return Verdict(Kind.NONE, after)
    if text[pos] in ".．" and text[pos - 1].isdigit():
        lone = text[start:pos].strip().isdigit()
        return Verdict(Kind.NONE if lone or follower.isdigit() else Kind.SENTENCE, after)
    return Verdict(Kind.SENTENCE, after)


def _abbreviated(text: str, start: int, pos: int, final: bool) -> bool | None:
    """Tell whether the sentence goes on after a full stop and a space; None: more text decides."""
    at = pos
    oldest = max(start, pos - 20)
    while at > oldest and not (text[at - 1].isspace() or text[at - 1] in _BEFORE_TOKEN):
        if is_wide(text[at - 1]):
            break
        at -= 1
    token = text[at:pos]
    word = token.lower()
    if word in abbreviations.ALWAYS:
        return True
    first = next_visible(text, pos + 1, final)
    if token.isdigit():
        if not text[start:at].strip(" \t\n*_#>-"):
            return True  # the number of a list item
        if len(token) > 2 or text[pos + 1] == "\n":
            return False
        following = next_word(text, pos + 1, final)
        if following is None:
            return None
        return following.islower() or following.lower() in abbreviations.GERMAN_ORDINAL
    if word in abbreviations.BEFORE_NUMBER:
        return None if first is None else first.isdigit()
    if word in abbreviations.MERIDIEM:
        return None if first is None else first != "" and not first.isupper()
    lone_letter = len(token) == 1 and token.isalpha() and not is_wide(token)
    if lone_letter and token.islower():
        return not text[start:at].strip()  # "a." in front of a list item
    if lone_letter or word in abbreviations.MAYBE or _DOTTED.fullmatch(token):
        if first == "":
            return False
        following = next_word(text, pos + 1, final)
        if following is None:
            return None
        capital = following[:1].isupper()
        return not (capital and following.lower() in abbreviations.STARTERS)
    return False


def comma(text: str, start: int, pos: int, final: bool) -> Verdict:
    """Judge a comma, semicolon or colon; between digits none of them parts."""
    sign = text[pos]
    kind = Kind.LIST if sign in "、､" else Kind.WEAK
    after_digit = pos > start and text[pos - 1].isdigit()
    narrow = sign in ",;:"
    if not narrow and not after_digit:
        return Verdict(kind, pos + 1)
    after = _run_end(text, pos + 1, _ATTACHED, _MAX_RUN) if narrow else pos + 1
    if after == len(text):
        return Verdict(kind if final else Kind.WAIT, after)
    if not text[after].isspace():
        parts = is_wide(text[after]) and not text[after].isdigit()
        return Verdict(kind if parts or not (narrow or after_digit) else Kind.NONE, after)
    if after_digit:
        first = next_visible(text, after, final)
        if first is None:
            return Verdict(Kind.WAIT, after)
        if first.isdigit():
            return Verdict(Kind.NONE, after)
    return Verdict(kind, after)


def dash(text: str, start: int, pos: int, final: bool) -> Verdict:
    """Judge a dash: a pause unless it joins words or digits."""
    if pos > start and text[pos - 1] in DASHES:
        return Verdict(Kind.NONE, pos)
    end = _run_end(text, pos, DASHES, _MAX_RUN)
    if end == len(text):
        return Verdict(Kind.WEAK if final else Kind.WAIT, end)
    before = text[pos - 1] if pos > start else " "
    spaced = before.isspace() and text[end].isspace()
    if text[pos:end] in ("-", "‒"):
        return Verdict(Kind.WEAK if spaced and pos > start else Kind.NONE, end)
    joined = before.isdigit() or text[end].isdigit() or pos == start
    return Verdict(Kind.NONE if joined and not spaced else Kind.WEAK, end)


def closer(text: str, start: int, pos: int, final: bool) -> Verdict:
    """Judge a closing bracket or quotation mark behind the end of a sentence within it."""
    if pos == start or text[pos - 1] not in FULL_STOPS:
        return Verdict(Kind.NONE, pos + 1)
    if pos + 1 == len(text):
        return Verdict(Kind.SENTENCE if final else Kind.WAIT, pos + 1)
    follower = text[pos + 1]
    if follower in OPENERS:
        return Verdict(Kind.SENTENCE, pos + 1)
    if follower.isspace():
        first = next_visible(text, pos + 1, final)
        if first is None:
            return Verdict(Kind.WAIT, pos + 1)
        return Verdict(Kind.NONE if first.islower() else Kind.SENTENCE, pos + 1)
    return Verdict(Kind.WEAK if is_wide(follower) else Kind.NONE, pos + 1)


def parts_at_space(before: str, behind: str) -> bool:
    """Tell whether a gap between two characters may be a pause: not around numbers and units."""
    if before.isdigit() or behind.isdigit() or before in _CURRENCY or behind in _UNITS:
        return False
    return before not in ".+=<>*/×÷" and behind not in "+=<>*/×÷"


def parts_between(before: str, behind: str) -> bool:
    """Tell whether a phrase probably ends between two wide characters."""
    if before in "的吗呢吧嘛呀啊":
        return True
    if before == "了":
        return behind not in "解"
    hiragana = "ぁ" <= before <= "ゖ"
    return hiragana and ("\u4e00" <= behind <= "\u9fff" or "ァ" <= behind <= "ヺ")


_ENDING: Final = re.compile(
    rf"(\S*?)([{re.escape(STOPS)}]+)[{re.escape(''.join(sorted(_ATTACHED)))}]*\s*\Z"
)


def seems_complete(text: str) -> bool:
    """Tell whether a text after which nothing comes for a while probably ends a sentence.

    Only for a stop that waits for the next character; not where a number or an abbreviation may
    go on.
    """
    found = _ENDING.search(text)
    if found is None:
        return False
    word, stops = found[1].lstrip("".join(_BEFORE_TOKEN)), found[2]
    if stops != ".":
        return True
    return not (word[-1:].isdigit() or len(word) == 1 or abbreviations.may_go_on(word))
