"""Speaks the utterances of one session in turn, no further ahead than its listener wants.

::

    protocol.front ──► turn ──► SpeechService ──► protocol ──► writer
                        ▲                            │
                        └── waits: bytes in the outbox, lead over the listener

The turn of an utterance that is cancelled is over at once; its engine may still finish a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.server.audio_cache import MAX_CHARS
from cosyvoice_stream.server.error_map import error_kind, log_internal
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.observability import (
    Outcome,
    SessionLog,
    UtteranceMetrics,
    log_utterance,
)
from cosyvoice_stream.server.observer import Observer
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.speech import (
    AudioOut,
    Done,
    MarksOut,
    Speech,
    SpeechEvent,
    SpeechService,
    Started,
    WarningOut,
)
from cosyvoice_stream.server.transport import Writer
from cosyvoice_stream.server.utterance import Utterance
from cosyvoice_stream.types import Flush

MAX_STREAM_BYTES: Final = 64 * 1024
"""Audio of a session that waits beside the transport's own buffer."""
_MAX_CLOSING: Final = 2
"""Cancelled utterances whose engine may still finish its step while the next one speaks."""


@dataclass
class _Turn:
    """The utterance that is being spoken."""

    utterance: Utterance
    began_at: float
    speech: Speech | None = None
    task: asyncio.Task[None] | None = None
    started: bool = False
    reported: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Cancel, without waiting for the engine."""
        if self.speech is not None:
            self.speech.give_up_slot()
        if self.task is not None:
            self.task.cancel()
        self.over.set()


class Speaker:
    """Gives each utterance its turn.

    Args:
        protocol: Knows whose turn it is and takes what is said.
        writer: Sends it.
        speech: Speaks.
        observer: Is told how utterances ended.
        caller: Whose limits count.
        require_ready: Raises while the engine takes no work.
        log: Of the session.
    """

    def __init__(
        self,
        protocol: SessionProtocol,
        writer: Writer,
        speech: SpeechService,
        observer: Observer,
        *,
        caller: Caller,
        require_ready: Callable[[], None],
        log: SessionLog,
    ) -> None:
        self._protocol = protocol
        self._writer = writer
        self._speech = speech
        self._observer = observer
        self._caller = caller
        self._require_ready = require_ready
        self._log = log
        self._clock = speech.clock
        self._speakable = asyncio.Event()
        self._text = asyncio.Event()
        self._heard = asyncio.Event()
        self._turn: _Turn | None = None
        self._last_turn = 0
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Speak for ever; the turns are tasks of `group`."""
        while True:
            utterance = self._protocol.front
            if utterance is None or not (utterance.pending or utterance.text_is_complete):
                self._speakable.clear()
                await self._speakable.wait()
                continue
            self._last_turn = utterance.number
            self._turn = turn = _Turn(utterance, self._clock())
            turn.task = group.create_task(self._speak(turn), name="session utterance")
            self._closing.add(turn.task)
            turn.task.add_done_callback(self._closing.discard)
            await turn.over.wait()
            self._turn = None
            while len(self._closing) > _MAX_CLOSING:
                await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)

    def text_arrived(self) -> None:
        """An utterance was opened, or has got text, a flush, or the end of its text."""
        self._speakable.set()
        self._text.set()

    def heard(self) -> None:
        """The listener may have said how far it is."""
        self._heard.set()

    def stop(self, utterance: Utterance) -> None:
        """An utterance has been ended by its client, or by a limit."""
        turn = self._turn
        if turn is not None and turn.utterance is utterance:
            turn.stop()
            self._report(turn, "cancelled")
        elif utterance.number > self._last_turn:
            self._report(_Turn(utterance, self._clock()), "cancelled")
        self._speakable.set()

    def leave(self) -> None:
        """The session is over."""
        if self._turn is not None:
            self._report(self._turn, "cancelled")

    async def _speak(self, turn: _Turn) -> None:
        utterance = turn.utterance
        try:
            self._require_ready()
            whole = self._protocol.take_whole_text(utterance, MAX_CHARS)
            text = self._text_of(utterance) if whole is None else whole
            turn.speech = self._speech.speak(text, utterance.settings, caller=self._caller)
            async with turn.speech:
                async for event in turn.speech:
                    turn.started = True
                    await self._deliver(utterance, event)
            self._report(turn, "done")
        except Exception as error:
            if not isinstance(error, VoiceStreamError):
                log_internal(self._log, error)
            self._protocol.send_failed(utterance, error)
            if turn.started:
                self._report(turn, "failed")
            else:
                self._observer.refused(error_kind(error).code)
        finally:
            self._writer.wake()
            turn.over.set()

    async def _deliver(self, utterance: Utterance, event: SpeechEvent) -> None:
        match event:
            case Started():
                self._protocol.send_started(utterance, event)
            case MarksOut():
                self._protocol.send_marks(utterance, event)
            case WarningOut():
                self._protocol.send_warning(utterance, event)
            case AudioOut():
                await self._keep_lead(utterance)
                self._protocol.send_audio(utterance, event)
            case Done():
                self._protocol.send_done(utterance, event)
        self._writer.wake()
        await self._writer.until(lambda: self._protocol.stream_bytes <= MAX_STREAM_BYTES)

    async def _keep_lead(self, utterance: Utterance) -> None:
        """Wait until the listener has no more audio before it than it wants."""
        while (wait_s := utterance.hold_s(self._clock())) > 0:
            self._heard.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._heard.wait()

    async def _text_of(self, utterance: Utterance) -> AsyncGenerator[str | Flush, None]:
        while True:
            piece = self._protocol.take_text(utterance)
            if piece is not None:
                yield piece
            elif utterance.text_is_complete:
                return
            else:
                self._text.clear()
                await self._text.wait()

    def _report(self, turn: _Turn, outcome: Outcome) -> None:
        if turn.reported:
            return
        turn.reported = True
        playout = turn.utterance.playout
        audio_ms = playout.to_ms(playout.generated)
        ready_at = turn.utterance.ready_at
        wait_ms = None if ready_at is None else (turn.began_at - ready_at) * 1000
        if turn.speech is None:
            metrics = UtteranceMetrics(outcome, None, wait_ms, audio_ms, None, 0)
        else:
            metrics = turn.speech.metrics(outcome, audio_ms=audio_ms, queue_wait_ms=wait_ms)
        self._observer.utterance_ended(metrics)
        log_utterance(self._log, metrics)
