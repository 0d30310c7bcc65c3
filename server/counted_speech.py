"""An utterance outside of sessions: closed, counted and logged when its request ends."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType

from cosyvoice_stream.errors import PeerGone
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.observability import Outcome, log_utterance
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.speech import AudioOut, SpeechEvent, Started
from cosyvoice_stream.server.wire_settings import UtteranceSettings

logger = logging.getLogger(__name__)


class CountedSpeech:
    """Speaks one whole text; use it as an async context manager, and iterate over its events.

    A piece of audio counts as handed over when the next event is asked for.

    Args:
        services: Of the application.
        text: What is spoken.
        settings: How it is spoken and encoded.
        caller: Whose limits count.
    """

    def __init__(
        self, services: Services, text: str, settings: UtteranceSettings, caller: Caller
    ) -> None:
        self._services = services
        self._speech = services.speech.speak(text, settings, caller=caller)
        self._pending: AudioOut | None = None
        self._audio_ms = 0.0
        self.started: Started | None = None
        """How the audio is to be played, once that is known."""

    def __aiter__(self) -> CountedSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        if self._pending is not None and self.started is not None:
            self._audio_ms = self._pending.end_sample * 1000 / self.started.sample_rate
        event = await anext(self._speech)
        if isinstance(event, Started):
            self.started = event
        self._pending = event if isinstance(event, AudioOut) else None
        return event

    async def __aenter__(self) -> CountedSpeech:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until the engine has let go; a refusal is counted where it is answered."""
        await self._speech.aclose()
        if self.started is None:
            return
        outcome: Outcome = "failed"
        if error is None:
            outcome = "done"
        elif isinstance(error, asyncio.CancelledError | PeerGone):
            outcome = "cancelled"
        metrics = self._speech.metrics(outcome, audio_ms=self._audio_ms)
        self._services.metrics.utterance_ended(metrics)
        log_utterance(logger, metrics)
