"""The way of a text from the client to the engine, and of positions back.

::

    client fragments ── stages ── engine fragments ──► engine
                          │                               │
            positions in the client's text  ◄──  word marks in the engine's text
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Final

from cosyvoice_stream.server.text_stages import TextStages, TextWarning
from cosyvoice_stream.streaming.clauses import Clause, ClauseSplitter
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.types import FLUSH, Flush, TextStream

_SPLIT_CHARS: Final = 64
"""Looked at together for the end of the first clause; what follows it is not looked at."""


class TextWay:
    """Leads the text of one utterance through its stages; knows where each character came from.

    Args:
        text: What the client sends. Closed together with `fragments`.
        stages: What is done to it.
        clock: In seconds, never going back.
    """

    def __init__(self, text: TextStream, stages: TextStages, clock: Callable[[], float]) -> None:
        self.characters = 0
        """Characters that have come from the client."""
        self.arrived_at: float | None = None
        """When the last fragment, flush, or the end of the text came."""
        self.clause_at: float | None = None
        """When the text came that completed the first clause, as `ClauseSplitter` sees it."""
        self._text = text
        self._clock = clock
        self._stages = stages
        # Per character given to the engine: where its source begins and ends. 8 bytes each.
        self._starts = array("I")
        self._ends = array("I")
        self._splitter = ClauseSplitter()
        self._waited_s = 0.0
        self._waiting_since: float | None = None

    async def fragments(self) -> AsyncGenerator[str | Flush, None]:
        """The text for the engine."""
        try:
            self._waiting_since = self._clock()
            async for fragment in self._text:
                self._arrived()
                if isinstance(fragment, Flush):
                    for piece in self._stages.break_here():
                        yield self._remember(piece)
                    self._note_clause(self._splitter.break_here)
                    yield FLUSH
                else:
                    self.characters += len(fragment)
                    for piece in self._stages.push(fragment):
                        yield self._remember(piece)
                self._waiting_since = self._clock()
            self._arrived()
            for piece in self._stages.flush():
                yield self._remember(piece)
            self._note_clause(self._splitter.flush)
        finally:
            self._arrived()
            await self.aclose()

    async def aclose(self) -> None:
        """Close the client's text stream."""
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

    def _remember(self, piece: MappedText) -> str:
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
        now = self._clock()
        if self._waiting_since is not None:
            self._waited_s += now - self._waiting_since
            self._waiting_since = None
            self.arrived_at = now
