"""All sessions of one application: how they are made, how many there are, how they end."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_stream.errors import EngineBusy, InvalidState, PeerGone, ShuttingDown
from cosyvoice_stream.server.observer import Observer
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.resume import ResumableTransport
from cosyvoice_stream.server.session import Session
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.transport import Transport
from cosyvoice_stream.server.voice_service import VoiceService
from cosyvoice_stream.server.wire import (
    EngineSummary,
    Limits,
    OutputSettings,
    ResumeOffer,
    SessionResumed,
    UtteranceSettings,
    VoiceName,
)
from cosyvoice_stream.types import EngineInfo

_RETRY_S = 5.0
"""Hint when all sessions are taken; how long others stay cannot be known."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """A session whose peer may come back."""

    session_id: str
    key: str | None
    transport: ResumableTransport

    async def resume(self, link: Transport, received: int) -> None:
        """Go on over another connection until that is lost as well.

        Raises:
            InvalidState: The peer lacks too much, or was too slow.
        """

        def greet() -> str:
            resumed = SessionResumed(session=self.session_id, received=self.transport.received)
            return resumed.to_json()

        with suppress(PeerGone):
            await self.transport.resume(link, received, greet)
            await self.transport.lost(link)


class Drainable(Protocol):
    """What is closed when the server stops."""

    async def drain(self, timeout_s: float) -> None:
        """Finish what runs, for `timeout_s` at most, take nothing new, and say good-bye."""
        ...


class Sessions:
    """Makes sessions and knows the live ones.

    Args:
        speech: Speaks.
        voices: Enrols recordings.
        observer: Is told what happens.
        require_ready: Raises while the engine takes no work.
        limits: What one session may ask for.
        defaults: Settings before any `session.update`.
        max_sessions: More are refused.
        max_sessions_per_key: Of these, for one key.
        stall_timeout_s: A peer that takes nothing for so long is dropped.
        resume_s: How long a peer that was cut off may stay away; 0 offers no resuming.
        idle_timeout_s: See `Session`.
        max_session_s: See `Session`.
    """

    def __init__(
        self,
        speech: SpeechService,
        voices: VoiceService,
        observer: Observer,
        *,
        require_ready: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        defaults: UtteranceSettings | None = None,
        max_sessions: int = 500,
        max_sessions_per_key: int | None = None,
        stall_timeout_s: float = 15.0,
        resume_s: float = 0.0,
        idle_timeout_s: float | None = None,
        max_session_s: float | None = None,
    ) -> None:
        self._speech = speech
        self._voices = voices
        self._observer = observer
        self._require_ready = require_ready
        self._limits = limits or Limits()
        self._defaults = defaults or UtteranceSettings()
        self._max_sessions = max_sessions
        self._max_per_key = max_sessions_per_key
        self._stall_timeout_s = stall_timeout_s
        # Longer than that, and the writer would take the wait for a stall.
        self._resume_s = min(resume_s, stall_timeout_s)
        self._idle_timeout_s = idle_timeout_s
        self._max_session_s = max_session_s
        self._resumable: dict[str, Resumable] = {}
        self._engine = engine_summary(speech.engine.info)
        self._live: set[Drainable] = set()
        self._per_key: Counter[str] = Counter()
        self._draining = False

    @property
    def live(self) -> int:
        """Open sessions."""
        return len(self._live)

    def check_room(self, key: str | None = None) -> None:
        """Refuse a newcomer.

        Args:
            key: `key_name` of the key that it comes with.

        Raises:
            ShuttingDown: The server is about to stop.
            EngineBusy: There are too many sessions.
        """
        if self._draining:
            raise ShuttingDown
        if len(self._live) >= self._max_sessions:
            raise EngineBusy(_RETRY_S, "all sessions are taken")
        limit = self._max_per_key
        if key is not None and limit is not None and self._per_key[key] >= limit:
            raise EngineBusy(_RETRY_S, "all sessions of this key are taken")

    async def serve(
        self,
        transport: Transport,
        *,
        raw_framing: bool,
        key: str | None = None,
        resumable: bool = False,
        fixed_output: OutputSettings | None = None,
        session_id: str | None = None,
    ) -> None:
        """Run one session until its end.

        Args:
            transport: The peer.
            raw_framing: Send audio without headers.
            key: Whose limits count.
            resumable: Offer the peer to come back when it is cut off.
            fixed_output: The form of its audio, where the transport allows no other.
            session_id: From `new_session_id`; one is made without it.
        """
        session_id = session_id or new_session_id()
        if not resumable or not self._resume_s:
            await self._run(session_id, transport, raw_framing, key, None, fixed_output)
            return
        offer = ResumeOffer(token=secrets.token_urlsafe(24), grace_ms=round(self._resume_s * 1000))
        lasting = ResumableTransport(transport, self._resume_s)
        self._resumable[offer.token] = Resumable(session_id, key, lasting)
        try:
            await self._run(session_id, lasting, raw_framing, key, offer, fixed_output)
        finally:
            del self._resumable[offer.token]
            lasting.abort()

    def find(self, token: str, received: int, key: str | None) -> Resumable:
        """Find the session that a peer wants to go on with.

        Args:
            token: Of its `session.ready`.
            received: Frames that it has got.
            key: Of the peer.

        Raises:
            InvalidState: It is over, or the peer lacks too much.
        """
        found = self._resumable.get(token)
        if found is None or found.key != key:
            raise InvalidState(
                "there is no such session to resume", how_to_fix="connect without `resume`"
            )
        found.transport.check(received)
        return found

    async def _run(
        self,
        session_id: str,
        transport: Transport,
        raw_framing: bool,
        key: str | None,
        offer: ResumeOffer | None,
        fixed_output: OutputSettings | None,
    ) -> None:
        defaults = self._defaults
        if fixed_output is not None:
            defaults = defaults.model_copy(update={"output": fixed_output})
        protocol = SessionProtocol(
            session_id,
            self._engine,
            limits=self._limits,
            defaults=defaults,
            raw_framing=raw_framing,
            warn=self._speech.warnings,
            resume=offer,
            fixed_output=fixed_output,
        )
        session = Session(
            transport,
            protocol,
            self._speech,
            self._voices,
            observer=self._observer,
            require_ready=self._require_ready,
            stall_timeout_s=self._stall_timeout_s,
            key=key,
            idle_timeout_s=self._idle_timeout_s,
            max_session_s=self._max_session_s,
        )
        with self.counting(session, key):
            await session.run()

    @contextmanager
    def counting(self, session: Drainable, key: str | None) -> Iterator[None]:
        """Count a session, also one of another protocol, until it ends.

        Args:
            session: Is drained when the server stops.
            key: Whose limits count.
        """
        self._live.add(session)
        self._per_key[key or ""] += 1
        try:
            yield
        finally:
            self._live.discard(session)
            self._per_key[key or ""] -= 1
            self._per_key += Counter()  # forget the zeros

    async def drain(self, timeout_s: float) -> None:
        """Close all sessions: live utterances finish, new ones are refused, then 1001.

        Args:
            timeout_s: What still runs after this ends with an error.
        """
        self._draining = True
        async with asyncio.TaskGroup() as group:
            for session in tuple(self._live):
                group.create_task(session.drain(timeout_s), name="drain session")


def new_session_id() -> str:
    """A name for a session that nobody guesses."""
    return "s-" + secrets.token_hex(6)


def engine_summary(info: EngineInfo) -> EngineSummary:
    """What clients are told about an engine."""
    return EngineSummary(
        name=info.name,
        sample_rate=info.sample_rate,
        languages=list(info.languages),
        features=sorted(info.features),
        description=info.description,
        voices=[VoiceName(id=voice.voice_id, name=voice.name) for voice in info.voices],
    )
