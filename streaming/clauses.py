"""Text in fragments → clauses, the smallest pieces that are spoken in one breath."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.streaming import abbreviations, boundaries
from cosyvoice_stream.streaming.boundaries import Kind, Verdict
from cosyvoice_stream.streaming.languages import speaks_any

_WIDE_UNITS: Final = 3
"""A Han character or kana takes about as long to say as three Latin letters."""
_MIN_UNITS: Final = 8
"""Nothing shorter is parted from a sentence, except as the last resort."""
_NEAR_END: Final = 16
"""A first clause is not parted between two words if the sentence ends within so many
characters."""
_OPEN_UNITS: Final = 160
"""An opening bracket without its partner counts as text after so many units."""
_MAX_OPEN: Final = 8
_MAX_ADDRESS: Final = 2048
_ENDS: Final = frozenset("\n" + boundaries.STOPS + boundaries.FULL_STOPS)
_LEADING: Final = frozenset("，、；：…．」』”’）】》〉〕］)]}" + boundaries.FULL_STOPS)


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of text to be spoken in one breath, without white space around it."""

    text: str
    char_start: int
    """Index of its first character in the concatenated pushed text."""
    char_end: int
    """Index after its last character."""
    ends_sentence: bool
    """A sentence ends here, or the text does."""
    ends_paragraph: bool
    """A blank line follows, or the text ends, as far as that is known: behind 。！？ nothing is
    waited for."""
    begins_paragraph: bool = False
    """A blank line stands before it."""


class _Scan:
    """What is known about the clause that is being read. Indices count from the clause's start."""

    __slots__ = ("best", "opens", "pos", "units")

    def __init__(self) -> None:
        self.pos = 0
        self.units = 0
        self.opens: list[tuple[str, int]] = []
        """Closing partner of each open bracket, and `units` where it opened."""
        self.best: dict[str, tuple[int, int]] = {}
        """Latest place (index, units) of each kind at which an overlong clause may be parted."""


class ClauseSplitter:
    """Cuts a text that arrives in fragments into clauses.

    The first clause is short, so that speech starts early: it ends at the first comma, semicolon,
    colon or dash after `first_min_chars`, before a conjunction or preposition after
    `first_split_chars`, and at a word boundary after `first_max_chars`. Every later clause is a
    sentence; a longer sentence than the speech before it can cover (`growth` times the text so far,
    `max_chars` at most) is parted at a comma, then between words. Han characters, kana and Hangul
    count three.

    The clauses depend on the text alone, not on its fragments: where the next characters matter
    (``3.`` may become ``3.14``), the splitter waits for them, and for a bounded number only.

    Args:
        first_min_chars: Shortest first clause that may end within a sentence.
        first_split_chars: From here the first clause may end before a conjunction.
        first_max_chars: From here the first clause ends between any two words.
        max_chars: Longest clause; only an address without spaces may be longer.
        growth: How many characters may be rendered while one character is heard.

    Raises:
        ConfigError: The lengths are not in order.
    """

    def __init__(
        self,
        *,
        first_min_chars: int = 16,
        first_split_chars: int = 32,
        first_max_chars: int = 60,
        max_chars: int = 240,
        growth: float = 2.0,
    ) -> None:
        if not _MIN_UNITS <= first_min_chars <= first_split_chars <= first_max_chars <= max_chars:
            raise ConfigError(
                f"clause lengths must be {_MIN_UNITS} <= first_min_chars <= first_split_chars <= "
                "first_max_chars <= max_chars"
            )
        if not growth > 0:
            raise ConfigError("growth must be positive")
        self._first_min = first_min_chars
        self._first_split = first_split_chars
        self._first_max = first_max_chars
        self._max = max_chars
        self._growth = growth
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next push starts a new text."""
        self._text = ""  # from the start of the clause that is being read
        self._offset = 0  # of _text[0] in the pushed text
        self._line_start = 0  # of the current line, in the pushed text
        self._newlines = 0
        """Line breaks since the last clause."""
        self._units_before = 0
        self._scan = _Scan()

    def push(self, text: str) -> list[Clause]:
        """Append a fragment and take the clauses that it completes."""
        self._text += text
        return self._split(final=False)

    def flush(self) -> list[Clause]:
        """End the text and take the rest. The next push starts a new text."""
        clauses = self._split(final=True)
        self.reset()
        return clauses

    def break_here(self) -> list[Clause]:
        """Take everything so far without waiting for the end of the sentence; the text goes on."""
        return self._split(final=True, pause_only=True)

    def _split(self, *, final: bool, pause_only: bool = False) -> list[Clause]:
        clauses: list[Clause] = []
        start = 0
        text = self._text
        while True:
            start = self._skip(text, start)
            verdict = self._read(text, start, final)
            if verdict is None:
                break
            clause = self._clause(text, start, verdict)
            if clause is not None:
                clauses.append(clause)
            start = verdict.end
            self._scan = _Scan()
        if final:
            rest = text[start:].rstrip()
            if rest:
                kind = Kind.PARAGRAPH
                if pause_only:
                    ended = (
                        rest.rstrip("\"'”’)]}*_")[-1:] in boundaries.STOPS + boundaries.FULL_STOPS
                    )
                    kind = Kind.SENTENCE if ended else Kind.WEAK
                clause = self._clause(text, start, Verdict(kind, start + len(rest)))
                if clause is not None:
                    clauses.append(clause)
            elif clauses and not pause_only:
                clauses[-1] = _ending_text(clauses[-1])
            start = len(text)
            self._scan = _Scan()
        self._text = text[start:]
        self._offset += start
        return clauses

    def _skip(self, text: str, start: int) -> int:
        """Step over what may not start a clause; only before anything of it was read."""
        if self._scan.pos == 0:
            while start < len(text) and (text[start].isspace() or text[start] in _LEADING):
                if text[start] == "\n":
                    self._line_start = self._offset + start + 1
                    self._newlines += 1
                start += 1
        return start

    def _clause(self, text: str, start: int, verdict: Verdict) -> Clause | None:
        words = text[start : verdict.end].rstrip()
        if not speaks_any(words):
            return None
        self._units_before += sum(_WIDE_UNITS if char > "\u2e7f" else 1 for char in words)
        char_start = self._offset + start
        newlines, self._newlines = self._newlines, 0
        return Clause(
            text=words,
            char_start=char_start,
            char_end=char_start + len(words),
            ends_sentence=verdict.kind in (Kind.SENTENCE, Kind.PARAGRAPH),
            ends_paragraph=verdict.kind is Kind.PARAGRAPH,
            begins_paragraph=newlines > 1,
        )

    def _read(self, text: str, start: int, final: bool) -> Verdict | None:
        """Read on until the clause ends; None if more text is needed or `text` is used up."""
        scan = self._scan
        first = self._units_before == 0
        limit = self._first_max
        if not first:
            limit = max(limit, min(self._max, int(self._growth * self._units_before)))
        pos = start + scan.pos
        while pos < len(text):
            char = text[pos]
            if char.isalnum():
                if char > "\u2e7f":
                    self._note_wide(text, start, pos)
                    scan.units += _WIDE_UNITS
                else:
                    scan.units += 1
            else:
                verdict = self._judge(text, start, pos, final, first)
                if verdict.kind is Kind.WAIT:
                    return None
                ended = self._ends(text, verdict, start, pos, limit, first)
                if ended is not None:
                    return ended
                scan.units += 1
            pos += 1
            scan.pos = pos - start
            if scan.units > limit:
                cut = self._cut(text, start, pos, limit, first)
                if cut is not None:
                    return cut
        return None

    def _judge(self, text: str, start: int, pos: int, final: bool, first: bool) -> Verdict:
        """Ask what may happen at a character that is neither letter nor digit."""
        char = text[pos]
        if char.isspace():
            return self._judge_space(text, start, pos, final, first)
        if char in boundaries.STOPS:
            return boundaries.stop(text, start, pos, final)
        if char in boundaries.FULL_STOPS:
            return Verdict(Kind.SENTENCE, pos + 1)
        if char in boundaries.COMMAS:
            return boundaries.comma(text, start, pos, final)
        if char in boundaries.DASHES:
            return boundaries.dash(text, start, pos, final)
        if char in boundaries.OPENERS or char in boundaries.CLOSERS or char == '"':
            return self._bracket(text, start, pos, final)
        return Verdict(Kind.NONE, pos)

    def _ends(
        self, text: str, verdict: Verdict, start: int, pos: int, limit: int, first: bool
    ) -> Verdict | None:
        """End the clause at a verdict, or remember the place."""
        scan = self._scan
        kind = verdict.kind
        if kind is Kind.NONE:
            return None
        place = (verdict.end - start, scan.units)
        if kind in (Kind.SENTENCE, Kind.PARAGRAPH):
            if kind is Kind.PARAGRAPH or not self._is_open(text[pos : verdict.end]):
                return verdict
            scan.best["inner"] = place
        elif self._is_open(text[pos : verdict.end]):
            scan.best["inner"] = place
        else:
            shortest = self._first_min if kind is Kind.WEAK else self._first_split
            if scan.units >= (shortest if first else limit + 1):
                return Verdict(Kind.WEAK, verdict.end)
            scan.best["weak"] = place
        return None

    def _judge_space(self, text: str, start: int, pos: int, final: bool, first: bool) -> Verdict:
        """Judge white space: the end of a line, a gap between words, or a place to part them."""
        scan = self._scan
        nothing = Verdict(Kind.NONE, pos)
        if text[pos - 1].isspace():
            return nothing
        verdict = boundaries.newline(text, start, pos, self._offset + pos - self._line_start, final)
        behind = boundaries.next_visible(text, pos, final)
        if verdict.kind is not Kind.NONE or not behind:
            return verdict if behind is not None else Verdict(Kind.WAIT, pos)
        word = boundaries.next_word(text, pos, final)
        near = pos + _NEAR_END
        may_end = first and scan.units >= self._first_split and word in abbreviations.JOINTS
        if word is None or (may_end and len(text) < near and not final):
            return Verdict(Kind.WAIT, pos)
        newline = text.rfind("\n", pos, pos + boundaries.MAX_SPACE)
        if newline >= 0 and text[pos:newline].isspace():
            self._line_start = self._offset + newline + 1
        place = (pos - start, scan.units)
        if self._is_open() or not boundaries.parts_at_space(text[pos - 1], behind):
            scan.best["poor"] = place
            return nothing
        scan.best["space"] = place
        if word in abbreviations.JOINTS:
            scan.best["joint"] = place
            ends_soon = len(text) < near or any(text[at] in _ENDS for at in range(pos, near))
            if may_end and not ends_soon:
                return Verdict(Kind.WEAK, pos)
        return nothing

    def _bracket(self, text: str, start: int, pos: int, final: bool) -> Verdict:
        """Follow brackets and quotation marks, and judge what a closing one ends."""
        char = text[pos]
        opens = self._scan.opens
        before = text[pos - 1] if pos > start else " "
        behind = text[pos + 1] if pos + 1 < len(text) else " "
        if behind == " " and pos + 1 == len(text) and not final and char in '"<':
            return Verdict(Kind.WAIT, pos)
        if any(char == partner for partner, _ in opens):
            verdict = boundaries.closer(text, start, pos, final)
            if verdict.kind is not Kind.WAIT:
                while opens.pop()[0] != char:
                    pass
            return verdict
        partner = boundaries.OPENERS.get(char)
        in_word = before.isalnum() and not boundaries.is_wide(before)
        if char == '"' and not in_word and not behind.isspace():
            partner = '"'
        elif (
            (char == "<" and not (behind.isalpha() or behind == "/"))
            or (char == "(" and before in ":;=-")
            or (char == "«" and not before.isspace())
        ):
            partner = None
        if partner is not None and len(opens) < _MAX_OPEN:
            opens.append((partner, self._scan.units))
        return Verdict(Kind.NONE, pos)

    def _is_open(self, signs: str = "") -> bool:
        """Tell whether a bracket or quotation mark is open, and stays so after `signs`."""
        opens = self._scan.opens
        depth = len(opens)
        for sign in signs:
            for at in range(depth - 1, -1, -1):
                if opens[at][0] == sign:
                    depth = at
                    break
        return depth > 0 and self._scan.units - opens[depth - 1][1] <= _OPEN_UNITS

    def _note_wide(self, text: str, start: int, pos: int) -> None:
        """Remember that a text without spaces may be parted before `pos`."""
        if pos == start or not boundaries.is_wide(text[pos - 1]):
            return
        if text[pos].isdigit() and text[pos - 1].isdigit():
            return
        scan = self._scan
        place = (pos - start, scan.units)
        if self._is_open():
            scan.best["poor"] = place
        else:
            scan.best["wide"] = place
            if boundaries.parts_between(text[pos - 1], text[pos]):
                scan.best["phrase"] = place

    def _cut(self, text: str, start: int, pos: int, limit: int, first: bool) -> Verdict | None:
        """Part an overlong clause at the best place so far; None if it should go on."""
        scan = self._scan
        overlong = scan.units > self._max
        choices = [("weak", limit // 4)]
        if first or overlong:
            shortest = self._first_min if first else _MIN_UNITS
            choices += [("inner", limit // 4), ("joint", limit // 3), ("phrase", limit // 3)]
            choices += [("space", shortest), ("wide", shortest)]
        if overlong:
            choices += [("poor", _MIN_UNITS), ("space", 1), ("poor", 1)]
        for name, shortest in choices:
            place, units = scan.best.get(name, (0, 0))
            if units >= shortest and place > 0:
                return Verdict(Kind.WEAK, start + place)
        if not overlong:
            return None
        address = any(sign in text[start:pos] for sign in ("://", "www.", "@"))
        return None if address and scan.units < _MAX_ADDRESS else Verdict(Kind.WEAK, pos)


def _ending_text(clause: Clause) -> Clause:
    return replace(clause, ends_sentence=True, ends_paragraph=True)
