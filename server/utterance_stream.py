"""The frames and messages of utterances on their way into the outbox, in order, and their end."""

from __future__ import annotations

from functools import partial
from typing import Final

from cosyvoice_stream.server.encoders import PACK, WAV_HEADER_BYTES
from cosyvoice_stream.server.outbox import Outbox
from cosyvoice_stream.server.plain_audio import UNPACK, faded_end
from cosyvoice_stream.server.protocol_messages import started_message, warning_message
from cosyvoice_stream.server.speech_events import AudioOut, MarksOut, Started, WarningOut
from cosyvoice_stream.server.utterance import State, Utterance
from cosyvoice_stream.server.utterance_book import UtteranceBook
from cosyvoice_stream.server.wire import AudioHeader, Marks, ServerMessage
from cosyvoice_stream.streaming.fades import SmoothGain

_TAIL_BYTES: Final = 4
"""Of what was sent: at least one sample of any uncompressed encoding."""


class UtteranceStream:
    """Puts what is said into the outbox. What comes for an utterance that has ended is dropped.

    Args:
        outbox: Of the session.
        book: Is told when an utterance has ended.
        raw_framing: Audio frames without a header.
    """

    def __init__(self, outbox: Outbox, book: UtteranceBook, *, raw_framing: bool) -> None:
        self._outbox = outbox
        self._book = book
        self._raw = raw_framing
        self._header_bytes = 0 if raw_framing else AudioHeader.SIZE
        self._gain = SmoothGain()

    def start(self, utterance: Utterance, started: Started) -> None:
        """Say what follows."""
        if not utterance.is_spoken:
            return
        if self._gain.target == 1.0:
            self._gain.reset()
        utterance.playout = utterance.new_playout(started.sample_rate)
        utterance.encoding = started.encoding
        self._outbox.stream(utterance.number, started_message(utterance, started).to_json())

    def marks(self, utterance: Utterance, marks: MarksOut) -> None:
        """Note the words, and send what the client asked for."""
        if not utterance.is_spoken:
            return
        for word in marks.words:
            utterance.words.add(word.end_ms, word.char_end)
        wanted = utterance.settings.marks
        words = list(marks.words) if "word" in wanted else []
        visemes = list(marks.visemes) if "viseme" in wanted else []
        bookmarks = list(marks.bookmarks) or None
        if words or visemes or bookmarks or marks.mouth:
            message = Marks(
                id=utterance.id,
                words=words,
                visemes=visemes,
                bookmarks=bookmarks,
                mouth=marks.mouth,
            )
            self._outbox.stream(utterance.number, message.to_json())

    def warning(self, utterance: Utterance, warning: WarningOut) -> None:
        """Say something about the text."""
        if utterance.is_spoken:
            message = warning_message(utterance, warning)
            self._outbox.stream(utterance.number, message.to_json())

    def audio(self, utterance: Utterance, audio: AudioOut) -> None:
        """Queue a frame."""
        if not utterance.is_spoken:
            return
        utterance.playout.add_generated(audio.end_sample - audio.first_sample)
        if self._raw and not audio.data:
            return
        frame = self._header(utterance.number, audio.first_sample, audio.last) + audio.data
        on_sent = partial(utterance.note_sent, audio.end_sample, audio.last)
        self._outbox.stream(utterance.number, frame, on_sent, partial(self._shape, utterance))

    def finish(self, utterance: Utterance, message: ServerMessage, state: State) -> None:
        """Queue the last message of an utterance; it ends when that leaves."""
        if not utterance.is_spoken:
            return
        utterance.state = State.GENERATED
        utterance.pending.clear()
        self._outbox.stream(
            utterance.number, message.to_json(), lambda _: self._book.end(utterance, state)
        )

    def stop(self, utterance: Utterance, state: State, now: float | None) -> None:
        """End an utterance at once; what it has in the outbox is dropped.

        Args:
            utterance: A live one.
            state: How it ends; a cancelled one fades out.
            now: The time; needed for a fade.
        """
        frame = self._outbox.drop(utterance.number)
        self._book.end(utterance, state)
        if state is State.CANCELLED and now is not None:
            self._fade(utterance, frame, now)

    def turn_down(self, gain_db: float) -> None:
        """Send audio quieter from here on, until it is 0 dB again; compressed audio stays."""
        self._gain.target = 10 ** (gain_db / 20)

    def _shape(self, utterance: Utterance, frame: bytes) -> bytes:
        """What of a frame leaves."""
        header, data = frame[: self._header_bytes], frame[self._header_bytes :]
        data = self._turned_down(utterance, data)
        utterance.sent_tail = data[-_TAIL_BYTES:] or utterance.sent_tail
        return header + data

    def _turned_down(self, utterance: Utterance, data: bytes) -> bytes:
        if self._gain.is_unity or utterance.encoding not in UNPACK:
            return data
        file_header = b""
        if utterance.encoding == "wav" and not utterance.playout.sent:
            file_header, data = data[:WAV_HEADER_BYTES], data[WAV_HEADER_BYTES:]
        rate = utterance.playout.sample_rate
        samples = self._gain.apply(UNPACK[utterance.encoding](data), rate)
        return file_header + PACK[utterance.encoding][0](samples)

    def _fade(self, utterance: Utterance, frame: bytes, now: float) -> None:
        """Let what the listener hears end without a click; `frame` would have been next."""
        playout = utterance.playout
        if utterance.is_sent or not playout.sent or utterance.encoding not in UNPACK:
            return
        after = self._turned_down(utterance, frame[self._header_bytes :])
        data, samples = faded_end(
            utterance.encoding, playout.sample_rate, utterance.sent_tail, after
        )
        header = self._header(utterance.number, playout.sent, last=True)
        utterance.note_sent(playout.sent + samples, True, now)
        self._outbox.answer(header + data)

    def _header(self, number: int, first_sample: int, last: bool) -> bytes:
        return b"" if self._raw else AudioHeader(number, first_sample, last).pack()
