"""The session protocol without I/O: frames and times in, events and frames out.

Three verbs, as in every sans-I/O core::

    protocol.receive_text(frame, now)      then look at  protocol.events()
    protocol.send_audio(utterance, …)      what the session makes
    protocol.take(now)                     the next frame for the transport, one at a time

It owns the rules of docs/protocol.md: who is live, in which order they are spoken, what is refused,
and that no frame of an utterance follows the acknowledgement of its cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from cosyvoice_stream.errors import (
    InvalidMessage,
    LimitExceeded,
    ShuttingDown,
    VoiceStreamError,
)
from cosyvoice_stream.server.outbox import Outbox
from cosyvoice_stream.server.protocol_events import Arrived, Event, RecordingDropped, Stopped
from cosyvoice_stream.server.protocol_messages import (
    NOTHING_CANCELLED,
    done_message,
    error_message,
)
from cosyvoice_stream.server.recording_state import RecordingState
from cosyvoice_stream.server.speech import AudioOut, Done, MarksOut, Started, WarningOut
from cosyvoice_stream.server.utterance import State, Utterance
from cosyvoice_stream.server.utterance_book import UtteranceBook
from cosyvoice_stream.server.utterance_stream import UtteranceStream
from cosyvoice_stream.server.wire import (
    PROTOCOL,
    ClientMessage,
    EngineSummary,
    Limits,
    Options,
    OutputSettings,
    Playback,
    ResumeOffer,
    ServerMessage,
    SessionReady,
    SessionUpdate,
    SessionUpdated,
    Speak,
    TextDelta,
    TextFlush,
    UtteranceCancel,
    UtteranceCancelled,
    UtteranceEnd,
    UtteranceSettings,
    UtteranceStart,
    VadEvent,
    VadStart,
    VadStop,
    VoiceBegin,
    VoiceCancel,
    VoiceCommit,
    names_of,
    parse_client_message,
)
from cosyvoice_stream.streaming.ssml import check_ssml
from cosyvoice_stream.types import Flush

_MAX_ANSWER_BYTES: Final = 64 * 1024
"""Answers that wait for a client before its messages are left unread."""
_TAKE_CHARS: Final = 1024
"""Text that the engine takes at a time."""


class SessionProtocol:
    """State of one session.

    Args:
        session_id: Told to the client.
        engine: Told to the client.
        limits: What a client may ask for.
        defaults: Settings before any `session.update`.
        raw_framing: Audio frames without a header, one live utterance at a time.
        warn: What of some settings the engine will not do.
        resume: How a client that is cut off can come back; told to it.
        fixed_output: The audio has this form, whatever a client wishes: it goes to a track.
    """

    def __init__(
        self,
        session_id: str,
        engine: EngineSummary,
        *,
        limits: Limits | None = None,
        defaults: UtteranceSettings | None = None,
        raw_framing: bool = False,
        warn: Callable[[UtteranceSettings], list[str]] = lambda _: [],
        resume: ResumeOffer | None = None,
        fixed_output: OutputSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.limits = limits or Limits()
        self._engine = engine
        self._defaults = defaults or UtteranceSettings()
        self._settings = self._defaults
        self._warn = warn
        self._resume = resume
        self._fixed_output = fixed_output
        self._outbox = Outbox()
        self._events: list[Event] = []
        self._book = UtteranceBook(self.limits, one_at_a_time=raw_framing)
        self._stream = UtteranceStream(self._outbox, self._book, raw_framing=raw_framing)
        self._recording = RecordingState(self.limits.max_recording_s)
        self._shut_down: VoiceStreamError | None = None

    # What comes in

    def receive_text(self, text: str, now: float) -> None:
        """Take a text frame. A mistake in it is answered and changes nothing else.

        Args:
            text: The whole frame.
            now: In seconds, on any clock that never goes back; the same in all calls.
        """
        try:
            message = parse_client_message(text)
        except InvalidMessage as error:
            names = names_of(text)
            self.refuse(error, self._nameable(names.opening_id, opening=True), names.request_id)
            return
        try:
            self._handle(message, now)
        except VoiceStreamError as error:
            opening = isinstance(message, UtteranceStart | Speak)
            named = self._nameable(getattr(message, "id", None), opening=opening)
            self.refuse(error, named, message.request_id)

    def receive_binary(self, data: bytes) -> None:
        """Take a binary frame: a piece of a recording."""
        try:
            events = self._recording.receive(data)
        except VoiceStreamError as error:
            self.refuse(error)
            return
        self._recorded(events)

    def receive_track(self, data: bytes) -> None:
        """Take a piece of a microphone that has its own track; dropped while nothing listens."""
        self._recorded(self._recording.receive_track(data))

    def events(self) -> list[Event]:
        """What the frames so far ask the session to do; each event is returned once."""
        events, self._events = self._events, []
        return events

    def take_text(self, utterance: Utterance) -> str | Flush | None:
        """The next text for the engine; None if there is none, for the moment or at all."""
        return utterance.pending.take(_TAKE_CHARS)

    def take_whole_text(self, utterance: Utterance, max_chars: int) -> str | None:
        """All the text at once, if it is complete, short, and has no flush in it."""
        return utterance.pending.take_all(max_chars) if utterance.text_is_complete else None

    @property
    def front(self) -> Utterance | None:
        """The utterance to speak: the first whose audio is not complete."""
        return self._book.front

    @property
    def live(self) -> int:
        """Utterances whose end has not been sent."""
        return len(self._book.live)

    # What goes out

    def send_ready(self) -> None:
        """Greet."""
        self._answer(
            SessionReady(
                protocol=PROTOCOL,
                session=self.session_id,
                engine=self._engine,
                limits=self.limits,
                settings=self._settings,
                resume=self._resume,
            )
        )

    def send_started(self, utterance: Utterance, started: Started) -> None:
        """Say what follows."""
        self._stream.start(utterance, started)

    def send_marks(self, utterance: Utterance, marks: MarksOut) -> None:
        """Note the words, and send what the client asked for."""
        self._stream.marks(utterance, marks)

    def send_warning(self, utterance: Utterance, warning: WarningOut) -> None:
        """Say something about the text."""
        self._stream.warning(utterance, warning)

    def send_audio(self, utterance: Utterance, audio: AudioOut) -> None:
        """Queue a frame. Frames of an utterance that has ended are dropped."""
        self._stream.audio(utterance, audio)

    def send_done(self, utterance: Utterance, done: Done) -> None:
        """Say that all audio has been sent; until this leaves, a cancel still stops the rest."""
        self._stream.finish(utterance, done_message(utterance, done), State.DONE)

    def send_failed(self, utterance: Utterance, error: BaseException) -> None:
        """End an utterance with an error, behind the audio that it has."""
        self._stream.finish(utterance, error_message(error, utterance.id), State.FAILED)

    def send(self, message: ServerMessage) -> None:
        """Send what does not belong to an utterance (``voice.*``)."""
        self._answer(message)

    def refuse(
        self,
        error: BaseException,
        utterance_id: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Answer with an error.

        Args:
            error: What is wrong.
            utterance_id: The utterance that could not be opened, or is not known; never a live
                one, for which an error with its id would be the end.
            request_id: Of the message that is refused.
        """
        self._answer(error_message(error, utterance_id, request_id))

    def recording_over(self) -> None:
        """The recording has been answered; another one may begin."""
        self._recording.over()

    def uplink_changed(self, event: VadEvent, wanted: VadStart, now: float) -> None:
        """The listener has begun to speak, perhaps, or has stopped.

        A suspicion turns the speech down; a verdict cancels it, or leaves it as loud as it was.
        """
        self._answer(event)
        maybe = event.state == "maybe_speech"
        self._stream.turn_down(wanted.duck_db if maybe else 0.0)
        if event.state == "speech" and wanted.cancel:
            for answer in self._stop_speaking(self._book.live, now):
                self._answer(answer.model_copy(update={"reason": "speech"}))

    def shut_down(self, error: VoiceStreamError | None = None) -> None:
        """Tell the client why the session ends, and open no more utterances.

        Args:
            error: Why; that the server stops, without it.
        """
        if self._shut_down is None:
            self._shut_down = error or ShuttingDown()
            self.refuse(self._shut_down)

    def abandon(self, error: VoiceStreamError) -> None:
        """End everything that is live with an error."""
        for utterance in self._book.live:
            self._stream.stop(utterance, State.FAILED, None)
            self._events.append(Stopped(utterance))
            self.refuse(error, utterance.id)

    def take(self, now: float) -> str | bytes | None:
        """The next frame for the transport, or None; what is taken counts as sent."""
        return self._outbox.take(now)

    def data_to_send(self, now: float) -> list[str | bytes]:
        """All frames that wait, in order."""
        return list(iter(partial(self.take, now), None))

    @property
    def stream_bytes(self) -> int:
        """Audio and its control frames that wait; the speaker waits while they are too many."""
        return self._outbox.stream_bytes

    @property
    def reading_paused(self) -> bool:
        """Whether the client has to take its answers before more of it is read."""
        return self._outbox.answer_bytes > _MAX_ANSWER_BYTES

    # Messages

    def _handle(self, message: ClientMessage, now: float) -> None:
        match message:
            case TextDelta():
                self._add_text(message, now)
            case SessionUpdate():
                self._settings = self._merged(message)
                warnings = self._warn(self._settings)
                self._answer(
                    SessionUpdated(
                        settings=self._settings, warnings=warnings, request_id=message.request_id
                    )
                )
            case UtteranceStart():
                self._arrived(self._open(message), now)
            case Speak():
                self._book.check_id(message.id)
                self._book.check_text(0, message.text)
                utterance = self._open(message)
                self._book.add_text(utterance, message.text)
                utterance.state = State.CLOSED
                self._arrived(utterance, now)
            case TextFlush():
                if (flushed := self._book.writable(message.id)) is not None:
                    flushed.pending.flush()
                    self._arrived(flushed, now)
            case UtteranceEnd():
                if (closed := self._book.writable(message.id)) is not None:
                    closed.state = State.CLOSED
                    self._arrived(closed, now)
            case UtteranceCancel():
                self._cancel(message, now)
            case Playback():
                known = self._book.known(message.id)
                known.playout.report(round(message.played_ms * known.playout.sample_rate / 1000))
            case VoiceBegin():
                self._events += self._recording.begin(message)
            case VoiceCommit():
                self._events += self._recording.commit(message.request_id)
            case VoiceCancel():
                self._events += self._recording.cancel()
            case VadStart():
                self._events += self._recording.listen(message)
                self._stream.turn_down(0.0)
            case VadStop():
                self._events += self._recording.stop_listening()
                self._stream.turn_down(0.0)

    def _open(self, message: UtteranceStart | Speak) -> Utterance:
        if self._shut_down is not None:
            raise self._shut_down
        settings = self._merged(message)
        if settings.ssml and isinstance(message, Speak):
            check_ssml(message.text)
        return self._book.open(message.id, settings)

    def _merged(self, message: Options) -> UtteranceSettings:
        settings = self._settings.merged(message.changes(), self._defaults)
        if self._fixed_output is not None:
            settings.output.require_form_of(self._fixed_output)
        return settings

    def _recorded(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RecordingDropped) and event.error is not None:
                self.refuse(event.error, request_id=event.request_id)
        self._events += events

    def _add_text(self, message: TextDelta, now: float) -> None:
        utterance = self._book.writable(message.id)
        if utterance is None:
            return
        try:
            self._book.check_text(utterance.text_chars, message.text)
        except LimitExceeded as error:
            # With a hole in its text it would say something that nobody wrote.
            self._end_now(utterance, State.FAILED, now)
            self.refuse(error, utterance.id)
            return
        self._book.add_text(utterance, message.text)
        self._arrived(utterance, now)

    def _arrived(self, utterance: Utterance, now: float) -> None:
        if utterance.ready_at is None and (utterance.pending or utterance.text_is_complete):
            utterance.ready_at = now
        self._events.append(Arrived(utterance))

    def _cancel(self, message: UtteranceCancel, now: float) -> None:
        targets = self._book.live if message.id is None else [self._book.known(message.id)]
        answers = self._stop_speaking(targets, now)
        for answer in answers or [NOTHING_CANCELLED]:
            self._answer(answer.model_copy(update={"request_id": message.request_id}))

    def _stop_speaking(self, targets: list[Utterance], now: float) -> list[UtteranceCancelled]:
        """Cancel what of this is live; return how far each one came."""
        answers = []
        for utterance in targets:
            if utterance.is_live:
                self._end_now(utterance, State.CANCELLED, now)
            answers.append(utterance.positions(now))
        return answers

    def _end_now(self, utterance: Utterance, state: State, now: float) -> None:
        self._stream.stop(utterance, state, now)
        self._events.append(Stopped(utterance))

    def _nameable(self, utterance_id: str | None, *, opening: bool) -> str | None:
        if utterance_id is None or not self._book.may_be_named(utterance_id, opening=opening):
            return None
        return utterance_id

    def _answer(self, message: ServerMessage) -> None:
        self._outbox.answer(message.to_json())
