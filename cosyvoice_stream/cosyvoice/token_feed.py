"""Which rows the speech LM is fed, and which ids it may answer with: pure bookkeeping, no tensors.

Whole text::

    [start] prompt text, text [task] prompt speech → speech … end

Text that is still arriving, five text rows to fifteen speech rows, as the model was trained::

    [start] 5 text, 15 speech, 5 text, 15 speech, …, 5 text → 15 speech, fill
            5 text → 15 speech, fill …    rest of the text [task] → speech … end

`fill` asks for text and is never fed itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

TEXT_RATIO = 5
SPEECH_RATIO = 15
MIN_TOKENS_PER_TEXT = 2
MAX_TOKENS_PER_TEXT = 20


class RowKind(Enum):
    """Where the LM takes a row from."""

    START = "start"
    TEXT = "text"
    TASK = "task"
    SPEECH = "speech"


@dataclass(frozen=True, slots=True)
class Row:
    """One input row of the LM."""

    kind: RowKind
    token: int = 0
    """Text or speech id; 0 for the two fixed rows."""


START = Row(RowKind.START)
TASK = Row(RowKind.TASK)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the next id may be, besides speech tokens."""

    end: bool = False
    fill: bool = False
    forced: bool = False
    """True: the one allowed special id must come."""


class TokenFeed:
    """Feeds one utterance.

    Args:
        prompt_text: Text ids of the prompt, with the instruction where there is one.
        prompt_speech: Speech ids of the prompt.
        head: Leading rows of `prompt_text` that always stand before any speech (an instruction up
        to and
            with its end token).
        streaming: Answer before the text is complete.
    """

    def __init__(
        self,
        prompt_text: Sequence[int],
        prompt_speech: Sequence[int],
        *,
        head: int = 0,
        streaming: bool = False,
    ) -> None:
        self._streaming = streaming
        self._text = deque(Row(RowKind.TEXT, t) for t in prompt_text[head:])
        self._speech = deque(Row(RowKind.SPEECH, t) for t in prompt_speech)
        self._pending = [START, *(Row(RowKind.TEXT, t) for t in prompt_text[:head])]
        self._prompt_speech = len(prompt_speech)
        self._text_count = 0
        self._text_ended = False
        self._last_phase = False
        self._waiting = True
        self._generated = 0
        self._phase_generated = 0
        self._fill_at = (
            self._prompt_speech // SPEECH_RATIO + 1
        ) * SPEECH_RATIO - self._prompt_speech
        self.done = False

    def push_text(self, ids: Sequence[int]) -> None:
        """Append text ids."""
        self._text.extend(Row(RowKind.TEXT, t) for t in ids)
        self._text_count += len(ids)

    def finish_text(self) -> None:
        """No more text will come."""
        self._text_ended = True

    @property
    def ready(self) -> bool:
        """Whether `take` has something to give."""
        if self.done:
            return False
        if not self._waiting or self._text_ended:
            return True
        if not self._streaming:
            return False
        text, speech = len(self._text), len(self._speech)
        while speech > 0 and text >= TEXT_RATIO:
            text, speech = text - TEXT_RATIO, speech - SPEECH_RATIO
        if speech > 0:
            return False
        return text >= TEXT_RATIO or not (self._generated or not self._prompt_speech)

    def take(self) -> list[Row]:
        """Rows to feed before the next draw, which goes to `accept`; empty: wait for more text."""
        if self.done:
            return []
        if self._waiting:
            if self._text_ended:
                self._begin_last_phase()
            elif not self._streaming or not self._interleave():
                return []
            self._waiting = False
        rows, self._pending = self._pending, []
        return rows

    def _begin_last_phase(self) -> None:
        self._pending += [*self._text, TASK, *self._speech]
        self._text.clear()
        self._speech.clear()
        self._last_phase = True
        self._phase_generated = 0

    def _interleave(self) -> bool:
        """Move what is ready to the pending rows; True when speech is to be generated next."""
        while self._speech and len(self._text) >= TEXT_RATIO:
            self._move_text()
            for _ in range(min(SPEECH_RATIO, len(self._speech))):
                self._pending.append(self._speech.popleft())
        if self._speech:
            return False
        if self._generated or not self._prompt_speech:
            if len(self._text) < TEXT_RATIO:
                return False
            self._move_text()
        return True

    def _move_text(self) -> None:
        for _ in range(TEXT_RATIO):
            self._pending.append(self._text.popleft())

    @property
    def allowed(self) -> Allowed:
        """Special ids that the next draw may give."""
        if not self._last_phase:
            return Allowed(fill=True, forced=self._generated >= self._fill_at)
        limit = MAX_TOKENS_PER_TEXT * max(1, self._text_count)
        if self._generated >= limit:
            return Allowed(end=True, forced=True)
        few = MIN_TOKENS_PER_TEXT * self._text_count
        return Allowed(end=self._streaming or self._generated >= few)

    def accept(self, token: int, *, is_end: bool, is_fill: bool) -> bool:
        """Take a drawn id; True when it is a speech token of the utterance."""
        self._generated += 1
        if is_end:
            self.done = True
            return False
        if is_fill:
            self._fill_at = self._generated + SPEECH_RATIO
            self._waiting = True
            return False
        self._pending = [Row(RowKind.SPEECH, token)]
        return True
