"""What a session tells those who count."""

from __future__ import annotations

from typing import Literal, Protocol

from cosyvoice_stream.server.observability import UtteranceMetrics


class Observer(Protocol):
    """Counts what happens; `observability.Metrics` is one."""

    def session_opened(self) -> None:
        """A session begins."""
        ...

    def session_closed(self) -> None:
        """A session has ended."""
        ...

    def utterance_ended(self, utterance: UtteranceMetrics) -> None:
        """An utterance was spoken, or stopped."""
        ...

    def refused(self, reason: str) -> None:
        """An utterance was refused before it began; `reason` is an error code."""
        ...

    def enrolment(self, outcome: Literal["accepted", "rejected", "failed"]) -> None:
        """A recording was made into a voice, or not."""
        ...
