"""What sessions and speech tell those who count."""

from __future__ import annotations

from typing import Final, Literal, Protocol

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


class SpeechObserver(Protocol):
    """Measures the way from text to audio; `observability.Metrics` is one."""

    def stage(self, name: str, seconds: float) -> None:
        """One step of ``queue``, ``open``, ``engine``, ``sound`` or ``encode`` took so long."""
        ...

    def underrun(self, seconds: float) -> None:
        """A listener who plays from the first audio on would have waited so long."""
        ...

    def cache(self, hit: bool) -> None:
        """A whole text was looked for in the cache."""
        ...


class _Nobody:
    def stage(self, name: str, seconds: float) -> None:
        """Forget it."""

    def underrun(self, seconds: float) -> None:
        """Forget it."""

    def cache(self, hit: bool) -> None:
        """Forget it."""


nobody: Final[SpeechObserver] = _Nobody()
"""Counts nothing."""
