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
from collections.abc import Callable
from typing import Final

from cosyvoice_stream.errors import (
    EnrolmentRejected,
    PeerGone,
    ShuttingDown,
    VoiceStreamError,
)
from cosyvoice_stream.server.error_map import SessionIdle, SessionTooLong, log_internal
from cosyvoice_stream.server.limits import Caller
from cosyvoice_stream.server.mic_recording import MicRecording
from cosyvoice_stream.server.observability import SessionLog
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
    UplinkAudio,
    UplinkBegun,
    UplinkEnded,
)
from cosyvoice_stream.server.speaker import MAX_STREAM_BYTES, Speaker
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.transport import (
    Closed,
    PeerStalled,
    TrackAudio,
    Transport,
    Writer,
)
from cosyvoice_stream.server.uplink import UplinkEar
from cosyvoice_stream.server.voice_service import EnrolRequest, VoiceService
from cosyvoice_stream.server.wire import VoiceReady, VoiceRejected

__all__ = ["MAX_STREAM_BYTES", "Session"]

logger = logging.getLogger(__name__)

_MESSAGES_PER_TURN: Final = 32
"""Messages that are handled before other tasks of the loop get their turn."""
_LOOK_S: Final = 60.0
"""Between two looks at the time; utterances that ended meanwhile count as used until then."""
_LAST_WORDS_S: Final = 20.0
"""For what is being said when a session has lasted long enough."""
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
INTERNAL_ERROR: Final = 1011
_CLOSE_S: Final = 2.0


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
        key: `key_name` of the peer's key: whose limits count.
        idle_timeout_s: A session in which nothing is said or asked for so long is closed.
        max_session_s: A session is closed after so long, behind what it is saying.
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
        key: str | None = None,
        idle_timeout_s: float | None = None,
        max_session_s: float | None = None,
    ) -> None:
        self._key = key
        self._idle_timeout_s = idle_timeout_s
        self._max_session_s = max_session_s
        self._transport = transport
        self._protocol = protocol
        self._voices = voices
        self._observer = observer
        self._require_ready = require_ready
        self._clock = speech.clock
        self._log = SessionLog(logger, protocol.session_id)
        self._writer = Writer(transport, lambda: protocol.take(self._clock()), stall_timeout_s)
        self._speaker = Speaker(
            protocol,
            self._writer,
            speech,
            observer,
            caller=Caller(key),
            require_ready=require_ready,
            log=self._log,
        )
        self._used_at = self._clock()
        self._ended = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._recording: MicRecording | None = None
        self._uplink: UplinkEar | None = None
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
                group.create_task(self._watch_time(), name="session time")
                group.create_task(self._speaker.run(group), name="session speaker")
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
            self._speaker.leave()
            self._observer.session_closed()
            self._log.info("session closed: %s", reason)
            for voice_id in self._own_voices:
                self._voices.forget_temporary(voice_id)

    async def drain(self, timeout_s: float) -> None:
        """Let live utterances finish, refuse new ones, then close with 1001.

        Args:
            timeout_s: What still runs after this ends with an error.
        """
        await self._wind_down(ShuttingDown(), timeout_s, GOING_AWAY, "the server stops")
        await self._ended.wait()

    async def _wind_down(
        self, why: VoiceStreamError, timeout_s: float, code: int, reason: str
    ) -> None:
        """Let live utterances finish, refuse new ones, then close."""
        self._protocol.shut_down(why)
        self._writer.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._writer.until(lambda: self._ended.is_set() or not self._protocol.live)
        self._protocol.abandon(why)
        self._handle_events()
        self._writer.close_when_empty(code, reason)

    async def _watch_time(self) -> None:
        """Close the session when nothing happens for too long, or when it has lasted too long."""
        began = self._used_at = self._clock()
        while True:
            now = self._clock()
            if self._protocol.live or self._recording is not None or self._uplink is not None:
                self._used_at = now
            left_s = [_LOOK_S]
            if (max_s := self._max_session_s) is not None:
                if now - began >= max_s:
                    await self._wind_down(
                        SessionTooLong(max_s), _LAST_WORDS_S, NORMAL, "time is up"
                    )
                    return
                left_s.append(began + max_s - now)
            if (idle_s := self._idle_timeout_s) is not None:
                if now - self._used_at >= idle_s:
                    await self._wind_down(SessionIdle(idle_s), 0, NORMAL, "nothing happens")
                    return
                left_s.append(self._used_at + idle_s - now)
            await asyncio.sleep(min(left_s))

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
                if isinstance(frame, TrackAudio):
                    self._take_track(frame)
                else:
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
        self._used_at = self._clock()
        self._handle_events()
        self._speaker.heard()

    def _take_track(self, frame: TrackAudio) -> None:
        self._protocol.receive_track(frame)
        self._handle_events()

    def _handle_events(self) -> None:
        while events := self._protocol.events():
            for event in events:
                self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Arrived():
                self._speaker.text_arrived()
            case Stopped(utterance):
                self._speaker.stop(utterance)
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
            case UplinkBegun(message):
                self._uplink = UplinkEar(message)
            case UplinkAudio(data) if self._uplink is not None:
                for change in self._uplink.push(data):
                    self._protocol.uplink_changed(change, self._uplink.message, self._clock())
            case UplinkEnded():
                self._uplink = None

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
                    owner=self._key,
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
