"""The utterances of a session: who is live, in which order, and how much is allowed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from cosyvoice_stream.errors import InvalidState, LimitExceeded
from cosyvoice_stream.server.error_map import DuplicateUtterance, UnknownUtterance
from cosyvoice_stream.server.utterance import State, Utterance
from cosyvoice_stream.server.wire import Limits, UtteranceSettings

_REMEMBERED: Final = 64
"""Ended utterances that still get a full answer to a late cancel."""
_REMEMBERED_CHARS: Final = 100_000


class UtteranceBook:
    """Opens, finds, ends and finally forgets utterances.

    Args:
        limits: What a client may ask for.
        one_at_a_time: Refuse a second live utterance.
    """

    def __init__(self, limits: Limits, *, one_at_a_time: bool = False) -> None:
        self._limits = limits
        self._one_at_a_time = one_at_a_time
        self._live: dict[str, Utterance] = {}
        self._live_chars = 0
        self._ended: OrderedDict[str, Utterance] = OrderedDict()
        self._ended_chars = 0
        self._last_number = 0

    @property
    def live(self) -> list[Utterance]:
        """Live utterances in the order in which they are spoken."""
        return list(self._live.values())

    @property
    def front(self) -> Utterance | None:
        """The first one whose audio is not complete."""
        return next((u for u in self._live.values() if u.is_spoken), None)

    def check_id(self, utterance_id: str) -> None:
        """Refuse a new utterance that there is no room for.

        Raises:
            DuplicateUtterance: The id is in use.
            InvalidState: One utterance at a time, and one is live.
            LimitExceeded: Too many are live.
        """
        if utterance_id in self._live:
            raise DuplicateUtterance(utterance_id)
        if self._one_at_a_time and self._live:
            raise InvalidState(
                "with framing=raw one utterance is live at a time",
                how_to_fix="wait for utterance.done, or connect without framing=raw",
            )
        if len(self._live) >= self._limits.max_utterances:
            raise LimitExceeded("live utterances in a session", self._limits.max_utterances)

    def open(self, utterance_id: str, settings: UtteranceSettings) -> Utterance:
        """Add an utterance behind all others; an ended one with the same id is forgotten."""
        self.check_id(utterance_id)
        self._last_number += 1
        utterance = Utterance(utterance_id, self._last_number, settings)
        self._forget(utterance_id)
        self._live[utterance_id] = utterance
        return utterance

    def check_text(self, chars_before: int, text: str) -> None:
        """Refuse text that is too long for a message, an utterance, or the session.

        Raises:
            LimitExceeded: It is.
        """
        limits = self._limits
        sent = len(text)
        for what, limit, actual in (
            ("one message", limits.max_message_chars, sent),
            ("one utterance", limits.max_utterance_chars, chars_before + sent),
            ("the live utterances of a session", limits.max_live_chars, self._live_chars + sent),
        ):
            if actual > limit:
                raise LimitExceeded(f"characters of text in {what}", limit, actual)

    def add_text(self, utterance: Utterance, text: str) -> None:
        """Append text that has passed `check_text`."""
        utterance.add_text(text)
        self._live_chars += len(text)

    def known(self, utterance_id: str) -> Utterance:
        """Find an utterance that is live or remembered.

        Raises:
            UnknownUtterance: There is none.
        """
        utterance = self._live.get(utterance_id) or self._ended.get(utterance_id)
        if utterance is None:
            raise UnknownUtterance(utterance_id)
        return utterance

    def writable(self, utterance_id: str) -> Utterance | None:
        """Find the utterance that a client wants to add text to.

        Returns:
            The utterance, or None when it was ended by a cancel or an error that the client may not
            have known of when it sent the text.

        Raises:
            UnknownUtterance: There is none.
            InvalidState: Its text is complete.
        """
        utterance = self.known(utterance_id)
        if utterance.state in (State.CANCELLED, State.FAILED):
            return None
        if utterance.state is not State.OPEN:
            raise InvalidState(f"the text of the utterance {utterance_id!r} is complete")
        return utterance

    def may_be_named(self, utterance_id: str, *, opening: bool) -> bool:
        """Whether an error may carry this id without looking like the end of another utterance.

        Args:
            utterance_id: As the client sent it.
            opening: The refused message meant to open it.
        """
        return utterance_id not in self._live and (opening or utterance_id not in self._ended)

    def end(self, utterance: Utterance, state: State) -> None:
        """Move a live utterance to the ended ones; the oldest of those are forgotten."""
        utterance.end(state)
        del self._live[utterance.id]
        self._live_chars -= utterance.text_chars
        self._ended[utterance.id] = utterance
        self._ended_chars += utterance.text_chars
        while len(self._ended) > _REMEMBERED or self._ended_chars > _REMEMBERED_CHARS:
            self._forget(next(iter(self._ended)))

    def _forget(self, utterance_id: str) -> None:
        utterance = self._ended.pop(utterance_id, None)
        if utterance is not None:
            self._ended_chars -= utterance.text_chars
