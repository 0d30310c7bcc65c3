"""What the routes and sessions of one application share, as ``app.state.services``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from starlette.requests import HTTPConnection

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import EngineBusy, ShuttingDown
from cosyvoice_stream.server.consents import ConsentStore
from cosyvoice_stream.server.lexicon_book import LexiconBook
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.voice_service import VoiceService
from cosyvoice_stream.server.wire import Limits, OutputSettings, UtteranceSettings

if TYPE_CHECKING:
    from cosyvoice_stream.server.rtc_peers import Peers

logger = logging.getLogger(__name__)

_WARM_UP_RETRY_S = 1.0
"""Hint for clients that come before the engine is warm."""

_RESTART_RETRY_S = 1.0
"""Hint for clients that come while it is being restarted."""

State: TypeAlias = Literal["starting", "ready", "restarting", "failed", "stopping"]


class Readiness:
    """Whether the server takes work.

    ``starting`` → ``ready`` ⇄ ``restarting``, or ``failed``; ``stopping`` from anywhere, for good.

    Args:
        metrics: Is told.
        starts: What has to succeed before the server is ready: the engine's start, and warm-ups.

    Attributes:
        state: Where it stands.
        failure: Why a start failed.
    """

    def __init__(self, metrics: Metrics, *starts: Callable[[], Awaitable[None]]) -> None:
        self.state: State = "starting"
        self.failure: Exception | None = None
        self._metrics = metrics
        self._starts = starts
        self._settled = asyncio.Event()

    def also(self, start: Callable[[], Awaitable[None]]) -> None:
        """Add what has to succeed before the server is ready."""
        self._starts = (*self._starts, start)

    async def start(self) -> None:
        """Run all starts at the same time; a failure is kept for those who wait."""
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for start in self._starts:
                    group.create_task(_awaited(start), name="start")
        except* Exception as failures:
            self.failure = failures.exceptions[0]
            self.state = "failed"
        else:
            if self.state == "starting":
                self.state = "ready"
                self._metrics.set_ready(True)
                logger.info("warm after %.0f ms", (time.monotonic() - began) * 1000)
        finally:
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the engine is warm.

        Raises:
            Exception: What a start raised.
        """
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure

    def engine_lost(self) -> None:
        """The engine broke down and is being restarted."""
        self._metrics.engine_restarted()
        if self.state == "ready":
            self.state = "restarting"
            self._metrics.set_ready(False)

    def engine_back(self) -> None:
        """The engine speaks again."""
        if self.state == "restarting":
            self.state = "ready"
            self._metrics.set_ready(True)

    def stop(self) -> None:
        """Take no more work from here on."""
        self.state = "stopping"
        self._metrics.set_ready(False)
        self._settled.set()

    def require(self) -> None:
        """Raise unless the server takes new work.

        Raises:
            EngineBusy: The engine is not warm yet, or being restarted.
            ShuttingDown: The server is about to stop, or its engine did not start.
        """
        self.require_engine()
        if self.state == "stopping":
            raise ShuttingDown

    def require_engine(self) -> None:
        """Raise unless the engine works, for what was taken before the server began to stop.

        Raises:
            EngineBusy: The engine is not warm yet, or being restarted.
            ShuttingDown: The engine did not start.
        """
        if self.state == "starting":
            raise EngineBusy(_WARM_UP_RETRY_S, "the engine is warming up")
        if self.state == "restarting":
            raise EngineBusy(_RESTART_RETRY_S, "the engine is being restarted")
        if self.failure is not None:
            raise ShuttingDown


async def _awaited(start: Callable[[], Awaitable[None]]) -> None:
    await start()


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that is made once per application."""

    settings: Settings
    engine: Engine
    voices: VoiceService
    consents: ConsentStore
    lexicon: LexiconBook
    admission: Admission
    speech: SpeechService
    sessions: Sessions
    metrics: Metrics
    readiness: Readiness
    peers: Peers | None
    """WebRTC; None where that is not installed."""


def services_of(request: HTTPConnection) -> Services:
    """Return what the application of a request or a socket shares."""
    services: Services = request.app.state.services
    return services


def session_limits(settings: Settings) -> Limits:
    """Return what one session may ask for."""
    return Limits(
        max_utterance_chars=settings.max_text_chars,
        max_live_chars=2 * settings.max_text_chars,
        max_recording_s=settings.max_reference_s,
    )


def session_defaults(settings: Settings) -> UtteranceSettings:
    """Return the options of an utterance before a client says anything."""
    return UtteranceSettings(output=OutputSettings(lead_ms=settings.lead_ms))
