"""Runs the session protocol over a transport.

::

    transport ──► reader ──► protocol ──► writer ──► transport
                               ▲   │
                   frames, ends│   │ the utterance in front
                             speaker ──► SpeechService ──► engine

The writer waits for the transport, the speaker for the writer (`MAX_STREAM_BYTES`), and an engine
whose audio nobody takes stops rendering: a listener that does not read costs a bounded amount of
memory and soon no work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

from cosyvoice_stream.errors import (
    EnrolmentRejected,
    PeerGone,
    ShuttingDown,
    VoiceStreamError,
)
from cosyvoice_stream.server.error_map import error_kind, log_internal
from cosyvoice_stream.server.mic_recording import MicRecording
from cosyvoice_stream.server.observability import (
    Outcome,
    SessionLog,
    UtteranceMetrics,
    log_utterance,
)
from cosyvoice_stream.server.observer import Observer
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.protocol_events import (
    Arrived,
    Event,
    RecordingAudio,
    RecordingBegun,
    RecordingCommitted,
    RecordingDropped,
    Stopped,
)
from cosyvoice_stream.server.speech import (
    AudioOut,
    Done,
    MarksOut,
    Speech,
    SpeechEvent,
    SpeechService,
    Started,
)
from cosyvoice_stream.server.transport import Closed, PeerStalled, Transport, Writer
from cosyvoice_stream.server.utterance import Utterance
from cosyvoice_stream.server.voice_service import EnrolRequest, VoiceService
from cosyvoice_stream.server.wire import VoiceReady, VoiceRejected
from cosyvoice_stream.types import Flush

logger = logging.getLogger(__name__)

MAX_STREAM_BYTES: Final = 64 * 1024
"""Audio of a session that waits beside the transport's own buffer."""
_MAX_CLOSING: Final = 2
"""Cancelled utterances whose engine may still finish its step while the next one speaks."""
_MESSAGES_PER_TURN: Final = 32
"""Messages that are handled before other tasks of the loop get their turn."""
GOING_AWAY: Final = 1001
INTERNAL_ERROR: Final = 1011
_CLOSE_S: Final = 2.0


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


class Session:
    """One peer: reads, speaks and writes until the peer is gone or `drain` has closed it.

    Args:
        transport: The peer.
        protocol: Fresh state.
        speech: Speaks.
        voices: Enrols recordings.
        observer: Is told what happens.
        require_ready: Raises while the engine takes no work.
        stall_timeout_s: A peer that takes nothing for so long is dropped.
    """

    def __init__(
        self,
        transport: Transport,
        protocol: SessionProtocol,
        speech: SpeechService,
        voices: VoiceService,
        *,
        observer: Observer,
        require_ready: Callable[[], None] = lambda: None,
        stall_timeout_s: float = 15.0,
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._speech = speech
        self._voices = voices
        self._observer = observer
        self._require_ready = require_ready
        self._clock = speech.clock
        self._log = SessionLog(logger, protocol.session_id)
        self._writer = Writer(transport, lambda: protocol.take(self._clock()), stall_timeout_s)
        self._speakable = asyncio.Event()
        self._text = asyncio.Event()
        self._ended = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._turn: _Turn | None = None
        self._last_turn = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._recording: MicRecording | None = None
        self._own_voices: list[str] = []

    async def run(self) -> None:
        """Serve the peer. When this returns, nothing of the session is left."""
        self._observer.session_opened()
        self._log.info("session opened")
        self._protocol.send_ready()
        reason = "the peer left"
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._writer.run(), name="session writer")
                group.create_task(self._writer.watch(), name="session watch")
                group.create_task(self._speak_in_turn(group), name="session speaker")
                await self._read()
        except* Closed:
            reason = "closed by the server"
        except* PeerStalled:
            reason = "dropped, the peer did not read"
        except* PeerGone:
            pass
        except* Exception as failures:
            reason = "failed"
            for failure in failures.exceptions:
                log_internal(self._log, failure)
            await self._close_after_failure()
        finally:
            self._group = None
            self._ended.set()
            self._writer.recheck()
            if self._turn is not None:
                self._report(self._turn, "cancelled")
            self._observer.session_closed()
            self._log.info("session closed: %s", reason)
            for voice_id in self._own_voices:
                self._voices.forget_temporary(voice_id)

    async def drain(self, timeout_s: float) -> None:
        """Let live utterances finish, refuse new ones, then close with 1001.

        Args:
            timeout_s: What still runs after this ends with an error.
        """
        self._protocol.shut_down()
        self._writer.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._writer.until(lambda: self._ended.is_set() or not self._protocol.live)
        self._protocol.abandon(ShuttingDown())
        self._handle_events()
        self._writer.close_when_empty(GOING_AWAY, "the server stops")
        await self._ended.wait()

    async def _close_after_failure(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._transport.close(INTERNAL_ERROR, "internal error")
        except (TimeoutError, PeerGone):
            self._transport.abort()

    # Reading

    async def _read(self) -> None:
        handled = 0
        while True:
            await self._writer.until(lambda: not self._protocol.reading_paused)
            frame = await self._transport.receive()
            try:
                self._take_frame(frame)
            except Exception as error:
                # A mistake of ours in one message is no reason to end the conversation.
                log_internal(self._log, error)
                self._protocol.refuse(error)
            self._writer.wake()
            handled += 1
            if handled % _MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)

    def _take_frame(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            self._protocol.receive_text(frame, self._clock())
        else:
            self._protocol.receive_binary(frame)
        self._handle_events()

    def _handle_events(self) -> None:
        for event in self._protocol.events():
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Arrived():
                self._speakable.set()
                self._text.set()
            case Stopped(utterance):
                self._stop(utterance)
            case RecordingBegun(message):
                self._recording = MicRecording(message, self._protocol.limits.max_recording_s)
            case RecordingAudio(data) if self._recording is not None:
                for progress in self._recording.push(data):
                    self._protocol.send(progress)
            case RecordingCommitted(name) if (
                self._recording is not None and self._group is not None
            ):
                work = self._enrol(self._recording, name)
                self._group.create_task(work, name="session enrolment")
                self._recording = None
            case RecordingDropped():
                self._recording = None

    def _stop(self, utterance: Utterance) -> None:
        turn = self._turn
        if turn is not None and turn.utterance is utterance:
            turn.stop()
            self._report(turn, "cancelled")
        elif utterance.number > self._last_turn:
            self._report(_Turn(utterance, self._clock()), "cancelled")
        self._speakable.set()

    # Speaking

    async def _speak_in_turn(self, group: asyncio.TaskGroup) -> None:
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

    async def _speak(self, turn: _Turn) -> None:
        utterance = turn.utterance
        try:
            self._require_ready()
            turn.speech = self._speech.speak(self._text_of(utterance), utterance.settings)
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
            case AudioOut():
                self._protocol.send_audio(utterance, event)
            case Done():
                self._protocol.send_done(utterance, event)
        self._writer.wake()
        await self._writer.until(lambda: self._protocol.stream_bytes <= MAX_STREAM_BYTES)

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

    # Recording

    async def _enrol(self, recording: MicRecording, request_id: str | None) -> None:
        wanted = recording.message
        try:
            self._require_ready()
            made = await self._voices.enrol_samples(
                recording.samples(),
                recording.sample_rate,
                EnrolRequest(
                    name=wanted.name,
                    transcript=wanted.transcript,
                    consent=wanted.consent,
                    persist=wanted.persist,
                ),
            )
        except EnrolmentRejected as error:
            self._protocol.send(
                VoiceRejected(
                    request_id=request_id,
                    reason=error.reason,
                    message=error.message,
                    how_to_fix=error.how_to_fix,
                    quality=error.quality,
                )
            )
            self._observer.enrolment("rejected")
        except Exception as error:
            if not isinstance(error, VoiceStreamError):
                log_internal(self._log, error)
            self._protocol.refuse(error, request_id=request_id)
            self._observer.enrolment("failed")
        else:
            voice = made.voice.to_json()
            if not wanted.persist:
                self._own_voices.append(voice["id"])
            self._protocol.send(
                VoiceReady(
                    request_id=request_id,
                    voice=voice,
                    quality=made.quality,
                    transcript=made.transcript,
                    warnings=list(made.warnings),
                )
            )
            self._observer.enrolment("accepted")
        finally:
            self._protocol.recording_over()
            self._writer.wake()
