"""The way of a text from the client to the engine, and of positions back.

::

    client fragments ── stages ── engine fragments ──► engine
                          │                               │
            positions in the client's text  ◄──  word marks in the engine's text
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from cosyvoice_stream.server.segments import Cue
from cosyvoice_stream.server.text_stages import TextStages, TextWarning
from cosyvoice_stream.streaming.boundaries import seems_complete
from cosyvoice_stream.streaming.clauses import Clause, ClauseSplitter
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.types import FLUSH, Flush, TextStream, WordMark

_SPLIT_CHARS: Final = 64
"""Looked at together for the end of the first clause; what follows it is not looked at."""
HOLD_BACK_S: Final = 0.4
"""How long the end of a sentence waits for the next character, which might change it."""
OPEN_FACTOR: Final = 5
"""How many times as long a number or a word waits that has no end yet."""
_READ_CHARS: Final = 256
"""The loop gets its turn after so much text; reading it takes a few milliseconds."""
_TAIL_CHARS: Final = 48
"""Of the client's text, looked at for the end of a sentence."""


class TextWay:
    """Leads the text of one utterance through its stages; knows where each character came from.

    Args:
        text: What the client sends. Closed together with `fragments`.
        stages: What is done to it.
        clock: In seconds, never going back.
        hold_back_s: How long what may be the end of a sentence is held back for the characters that
            would show that it is none. Behind a number or a word that is still open it is
            `OPEN_FACTOR` times as long.
    """

    def __init__(
        self,
        text: TextStream,
        stages: TextStages,
        clock: Callable[[], float],
        *,
        hold_back_s: float = HOLD_BACK_S,
    ) -> None:
        self.characters = 0
        """Characters that have come from the client."""
        self.arrived_at: float | None = None
        """When the last fragment, flush, or the end of the text came."""
        self.clause_at: float | None = None
        """When the text came that completed the first clause, as `ClauseSplitter` sees it."""
        self._text = text
        self._clock = clock
        self._stages = stages
        self._hold_back_s = hold_back_s
        self._coming: asyncio.Task[str | Flush | None] | None = None
        """The next fragment, where it is waited for with a limit."""
        self._stalled = False
        """What was held back has been given out; nothing has come since."""
        self._client_text: list[str] = []
        self._marked = (0, 0)
        """Where the last word that has a mark stands in it."""
        # Per character given to the engine: where its source begins and ends. 8 bytes each.
        self._starts = array("I")
        self._ends = array("I")
        self._splitter = ClauseSplitter()
        self._waited_s = 0.0
        self._waiting_since: float | None = None

    async def fragments(self) -> AsyncGenerator[str | Flush, None]:
        """The text for the engine; for a text that is not SSML."""
        async with aclosing(self.items()) as items:
            async for item in items:
                assert isinstance(item, str | Flush)
                yield item

    async def items(self) -> AsyncGenerator[str | Flush | Cue, None]:
        """The text for the engine, and what SSML says about it.

        Raises:
            InvalidMarkup: It is SSML that is not well-formed, after what stands before the mistake.
        """
        try:
            self._waiting_since = self._clock()
            while (fragment := await self._next()) is not None:
                if isinstance(fragment, Flush):
                    for piece in self._stages.break_here():
                        yield self._remember(piece)
                    if not self._stalled or self._seems_complete():
                        self._note_clause(self._splitter.break_here)
                        yield FLUSH
                else:
                    self.characters += len(fragment)
                    self._client_text.append(fragment)
                    for start in range(0, len(fragment), _READ_CHARS):
                        if start:
                            await asyncio.sleep(0)
                        for piece in self._stages.push(fragment[start : start + _READ_CHARS]):
                            yield self._remember(piece)
                if self._stages.error is not None:
                    break
                self._waiting_since = self._clock()
            for piece in self._stages.flush():
                yield self._remember(piece)
            self._note_clause(self._splitter.flush)
            if self._stages.error is not None:
                raise self._stages.error
        finally:
            self._arrived()
            await self.aclose()

    async def _next(self) -> str | Flush | None:
        """Wait for the next fragment; None is the end, `FLUSH` may also mean that none came."""
        limit_s = None if self._stalled else self._patience_s()
        if self._coming is None:
            if limit_s is None:
                fragment = await anext(self._text, None)
                self._arrived()
                self._stalled = False
                return fragment
            self._coming = asyncio.ensure_future(_anext(self._text))
        done, _ = await asyncio.wait((self._coming,), timeout=limit_s)
        if not done:
            self._stalled = True
            self._waited()
            return FLUSH
        coming, self._coming = self._coming, None
        self._arrived()
        self._stalled = False
        return coming.result()

    def _patience_s(self) -> float | None:
        """How long more text is waited for before what is held back is given out."""
        if self._seems_complete():
            return self._hold_back_s
        return self._hold_back_s * OPEN_FACTOR if self._stages.holds else None

    def _seems_complete(self) -> bool:
        tail = ""
        for fragment in reversed(self._client_text):
            tail = fragment[-_TAIL_CHARS:] + tail
            if len(tail) >= _TAIL_CHARS:
                break
        return seems_complete(tail)

    async def aclose(self) -> None:
        """Close the client's text stream."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.wait((coming,))
        close = getattr(self._text, "aclose", None)
        if close is not None:
            await close()

    def take_warnings(self) -> list[TextWarning]:
        """Take what there is to say about the text since the last call."""
        return self._stages.take_warnings()

    def waited_s(self) -> float:
        """Seconds spent waiting for the client so far."""
        since = self._waiting_since
        return self._waited_s + (0.0 if since is None else self._clock() - since)

    def source_span(self, char_start: int, char_end: int) -> tuple[int, int]:
        """Where a stretch of the engine's text stands in the client's text.

        Args:
            char_start: Index of the first character in the text that the engine was given.
            char_end: Index after the last one.

        Returns:
            The same two positions in the text that the client sent.
        """
        known = len(self._starts)
        if not known:
            return 0, 0
        first = min(max(char_start, 0), known - 1)
        last = min(max(char_end - 1, first), known - 1)
        return self._starts[first], max(self._starts[first], self._ends[last])

    def in_client_text(self, words: Iterable[WordMark]) -> list[WordMark]:
        """Put word marks into the client's text.

        Words that stand for the same stretch of it (``three dollars`` for ``$3``) become one, and
        what was rewritten is given as it was sent. Of words for one stretch that come in several
        calls the first call gives the mark.
        """
        marks: list[WordMark] = []
        for word in words:
            start, end = self.source_span(word.char_start, word.char_end)
            last = marks[-1] if marks else None
            if last is None and self._marked[0] < end and start < self._marked[1]:
                continue
            if last is not None and start < last.char_end and end > last.char_start:
                start = last.char_start
                end = max(end, last.char_end)
                marks[-1] = WordMark(
                    self._sent(start, end), start, end, last.start_sample, word.end_sample
                )
                continue
            text = self._sent(start, end) if self._is_rewritten(word) else word.text
            marks.append(replace(word, text=text, char_start=start, char_end=end))
        if marks:
            self._marked = (marks[-1].char_start, marks[-1].char_end)
        return marks

    def _is_rewritten(self, word: WordMark) -> bool:
        """Tell whether the client wrote other characters than those that are spoken."""
        known = len(self._starts)
        places = range(max(0, word.char_start), min(word.char_end, known))
        return any(
            self._sent(self._starts[at], self._ends[at]) != char
            for at, char in zip(places, word.text, strict=False)
        )

    def _sent(self, start: int, end: int) -> str:
        """A stretch of the client's text."""
        if len(self._client_text) > 1:
            self._client_text = ["".join(self._client_text)]
        return self._client_text[0][start:end] if self._client_text else ""

    def _remember(self, piece: MappedText | Cue) -> str | Cue:
        if not isinstance(piece, MappedText):
            return piece
        self._starts.extend(piece.starts)
        self._ends.extend(piece.ends)
        for start in range(0, len(piece.text), _SPLIT_CHARS):
            if self.clause_at is not None:
                break
            self._note_clause(
                partial(self._splitter.push, piece.text[start : start + _SPLIT_CHARS])
            )
        return piece.text

    def _note_clause(self, split: Callable[[], list[Clause]]) -> None:
        if self.clause_at is None and split():
            self.clause_at = self.arrived_at

    def _arrived(self) -> None:
        if self._waiting_since is not None:
            self.arrived_at = self._waited()

    def _waited(self) -> float:
        """Count the wait that ends now."""
        now = self._clock()
        if self._waiting_since is not None:
            self._waited_s += now - self._waiting_since
            self._waiting_since = None
        return now


async def _anext(text: TextStream) -> str | Flush | None:
    return await anext(text, None)
