"""What a session knows about one utterance: its text, its positions, its end."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from io import StringIO
from typing import Final

from cosyvoice_stream.server.wire_replies import UtteranceCancelled
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.streaming.playout import Playout, SpokenWords
from cosyvoice_stream.types import FLUSH, Flush

_JOIN_AT: Final = 64
"""Fragments that are joined to one, so that tiny deltas cost linear time and little memory."""
_SHORTEST_HOLD_S: Final = 0.01
_REPORT_PATIENCE_S: Final = 60.0
"""Between two looks at a listener who reports; a report ends the wait at once."""


class State(StrEnum):
    """Where an utterance stands: ``OPEN → CLOSED → GENERATED → ended``, ended from anywhere."""

    OPEN = "open"
    """The client may send more text."""
    CLOSED = "closed"
    """The text is complete."""
    GENERATED = "generated"
    """The audio is complete too, or has failed; its last frames may wait for the transport."""
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class PendingText:
    """Text that the engine has not taken yet: fragments, flush marks, and whether it is complete.

    Fragments are joined; a flush mark stays where it was.
    """

    def __init__(self) -> None:
        self.chars = 0
        self._ready: deque[str | Flush] = deque()
        self._tail: list[str] = []

    def push(self, fragment: str) -> None:
        """Append text."""
        self.chars += len(fragment)
        self._tail.append(fragment)
        if len(self._tail) >= _JOIN_AT:
            self._join()

    def flush(self) -> None:
        """Append a flush mark; several in a row are one."""
        self._join()
        if not (self._ready and isinstance(self._ready[-1], Flush)):
            self._ready.append(FLUSH)

    def take(self, max_chars: int) -> str | Flush | None:
        """Remove and return what comes first, at most `max_chars` of it; None if there is none."""
        self._join()
        if not self._ready:
            return None
        first = self._ready.popleft()
        if isinstance(first, Flush):
            return first
        if len(first) > max_chars:
            self._ready.appendleft(first[max_chars:])
            first = first[:max_chars]
        self.chars -= len(first)
        return first

    def take_all(self, max_chars: int) -> str | None:
        """Remove and return everything; None if that is too long or has a flush mark in it."""
        self._join()
        texts = [piece for piece in self._ready if not isinstance(piece, Flush)]
        if self.chars > max_chars or len(texts) < len(self._ready):
            return None
        self.clear()
        return "".join(texts)

    def clear(self) -> None:
        """Forget everything."""
        self.chars = 0
        self._ready.clear()
        self._tail.clear()

    def __bool__(self) -> bool:
        return bool(self._ready or self._tail)

    def _join(self) -> None:
        if self._tail:
            self._ready.append("".join(self._tail))
            self._tail.clear()


class Utterance:
    """One cancellable answer. Made and changed by `SessionProtocol` only.

    Args:
        utterance_id: Chosen by the client.
        number: Counts from 1 in a session; in the header of every audio frame.
        settings: How it is spoken.
    """

    def __init__(self, utterance_id: str, number: int, settings: UtteranceSettings) -> None:
        self.id = utterance_id
        self.number = number
        self.settings = settings
        self.ready_at: float | None = None
        """When the first text came, or its end, on the clock of the session."""
        self.state = State.OPEN
        self.pending = PendingText()
        self.text_chars = 0
        self.words = SpokenWords()
        self.playout = self.new_playout(settings.output.sample_rate)
        self.encoding = ""
        """Of its audio, once that is known."""
        self.sent_tail = b""
        """The end of the audio that the transport has taken."""
        self.is_sent = False
        """Whether its last frame has been taken."""
        self._text = StringIO()
        self._final: UtteranceCancelled | None = None

    @property
    def is_live(self) -> bool:
        """Whether its end has not been told to the client."""
        return self.is_spoken or self.state is State.GENERATED

    @property
    def is_spoken(self) -> bool:
        """Whether its audio is still to be made, or being made."""
        return self.state in (State.OPEN, State.CLOSED)

    @property
    def text_is_complete(self) -> bool:
        """Whether no more text can come."""
        return self.state is not State.OPEN

    def add_text(self, text: str) -> None:
        """Append what the client sent."""
        self.text_chars += len(text)
        self._text.write(text)
        self.pending.push(text)

    def new_playout(self, sample_rate: int) -> Playout:
        """The positions of a listener like this one's, all zero."""
        return Playout(sample_rate, buffer_ms=self.settings.output.buffer_ms)

    def note_sent(self, position: int, last: bool, now: float) -> None:
        """The transport has taken audio that ends before `position`."""
        self.playout.set_sent(position, now)
        self.is_sent = self.is_sent or last

    def hold_s(self, now: float) -> float:
        """How long further audio has to wait so that the listener's lead stays bounded.

        Look again after that, or when the listener has reported a position.

        Returns:
            Seconds; 0 when the next piece may go out.
        """
        lead_ms = self.settings.output.lead_ms
        if not lead_ms or not self.is_spoken:
            return 0.0
        ahead_ms = self.playout.lead_ms(now) - lead_ms
        if ahead_ms <= 0:
            return 0.0
        if self.playout.is_reported:
            return _REPORT_PATIENCE_S
        # Frames that the transport has not taken do not play, so the time may prove too short.
        return max(ahead_ms / 1000, _SHORTEST_HOLD_S)

    def end(self, state: State) -> None:
        """Enter a final state; text that was not spoken is forgotten."""
        self.state = state
        self.pending.clear()

    def positions(self, now: float) -> UtteranceCancelled:
        """The answer to a cancel. The first answer is kept: the listener stops playing with it."""
        if self._final is None:
            played_ms, estimated = self.playout.played_ms(now)
            self._final = UtteranceCancelled(
                id=self.id,
                sent_ms=round(self.playout.to_ms(self.playout.sent), 1),
                played_ms=round(played_ms, 1),
                played_estimated=estimated,
                spoken_text=self.playout.text_heard(self._text.getvalue(), self.words, now),
            )
        return self._final
