"""Which stretches of a text the speech LM speaks in one go.

Each stretch is a sequence of its own that starts from the voice's prompt, so a long text costs no
more towards its end. Where a stretch ends depends on the text alone, never on how it arrived::

    first     the first clause of a second or more, to be heard soon
    further   whole sentences of two seconds or more
    always    no more than fifteen seconds, then it ends with a clause
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.streaming.clauses import Clause, ClauseSplitter

FIRST_S: Final = 1.0
SHORTEST_S: Final = 2.0
LONGEST_S: Final = 15.0
WIDE_CHAR_S: Final = 0.22
"""Rough time that a Chinese or Japanese character takes."""
NARROW_CHAR_S: Final = 0.065
FIRST_WIDE: Final = "\u2e80"
"""First character that counts as wide."""


@dataclass(frozen=True, slots=True)
class SegmentText:
    """Text for the speech LM, a whole segment or a part of one."""

    text: str
    char_start: int
    """Index of its first character in the text stream."""
    closes: bool
    """The segment is complete with it."""
    ends_sentence: bool = False


def spoken_s(text: str) -> float:
    """Estimate how long a text takes."""
    return sum(WIDE_CHAR_S if char >= FIRST_WIDE else NARROW_CHAR_S for char in text)


class SegmentCutter:
    """Cuts a text that arrives in fragments; any fragments give the same segments.

    Args:
        by_clause: Give out each clause of a segment as it is complete, not the whole segment.
    """

    def __init__(self, *, by_clause: bool = False) -> None:
        self._by_clause = by_clause
        self._splitter = ClauseSplitter()
        self._text = ""
        self._base = 0
        """Index of `_text[0]` in the text stream."""
        self._open_s = 0.0
        self._first = True
        self._waiting = (0, False)
        """End of the last clause that has not been given out, and whether a sentence ends there."""

    def push(self, text: str) -> list[SegmentText]:
        """Append text; return what it completes."""
        self._text += text
        return self._take(self._splitter.push(text))

    def break_here(self) -> list[SegmentText]:
        """End the segment with what has arrived."""
        return self._close(self._take(self._splitter.break_here()))

    def flush(self) -> list[SegmentText]:
        """No more text."""
        return self._close(self._take(self._splitter.flush()))

    def _take(self, clauses: list[Clause]) -> list[SegmentText]:
        out: list[SegmentText] = []
        for clause in clauses:
            self._open_s += spoken_s(clause.text)
            if self._ends(clause):
                out.append(self._cut(clause.char_end, clause.ends_sentence, closes=True))
                self._open_s, self._first = 0.0, False
            elif self._by_clause:
                out.append(self._cut(clause.char_end, clause.ends_sentence, closes=False))
            else:
                self._waiting = (clause.char_end, clause.ends_sentence)
        return out

    def _ends(self, clause: Clause) -> bool:
        if self._open_s >= LONGEST_S:
            return True
        if self._first:
            return self._open_s >= FIRST_S
        return clause.ends_sentence and self._open_s >= SHORTEST_S

    def _close(self, out: list[SegmentText]) -> list[SegmentText]:
        if self._open_s > 0:
            end, ends_sentence = self._waiting
            if self._by_clause and out and not out[-1].closes:
                last = out.pop()
                out.append(SegmentText(last.text, last.char_start, True, last.ends_sentence))
            elif self._by_clause:
                out.append(SegmentText("", self._base, True))
            else:
                out.append(self._cut(end, ends_sentence, closes=True))
            self._open_s, self._first = 0.0, False
        return out

    def _cut(self, end: int, ends_sentence: bool, *, closes: bool) -> SegmentText:
        count = end - self._base
        text, self._text = self._text[:count], self._text[count:]
        start = self._base
        self._base = end
        if closes and not self._by_clause:
            start += len(text) - len(text.lstrip())
            text = text.strip()
        return SegmentText(text, start, closes, ends_sentence)
