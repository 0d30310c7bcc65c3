"""ElevenLabs' sockets without I/O: ``stream-input`` and, with contexts, ``multi-stream-input``.

The text of a context is an utterance of the session. Where another context gets text while one is
still open, the open one is ended and goes on, should it get more text, with a further utterance:
the session speaks one after the other, and nobody waits for text that may never come.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.server.char_times import CharTime, CharTimes
from cosyvoice_stream.server.elevenlabs_format import VoiceSettings, limited_speed
from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.json_body import parse_body
from cosyvoice_stream.server.vendor_socket import Codec
from cosyvoice_stream.server.wire import (
    AudioHeader,
    ErrorMessage,
    Marks,
    ServerMessage,
    UtteranceDone,
    UtteranceStarted,
)

MAX_CONTEXTS: Final = 64
_NORMAL: Final = 1000
_POLICY: Final = 1008
_CLOSE_CODES: Final = {
    "busy": 1013,
    "shutting_down": 1001,
    "synthesis_failed": 1011,
    "internal": 1011,
}
"""By our code of an error; what is not here is the client's fault."""


class ClientMessage(BaseModel):
    """What clients send; what is not here has no effect."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    text: str | None = None
    flush: bool | None = None
    voice_settings: VoiceSettings | None = None
    context_id: Annotated[str, Field(max_length=256)] | None = Field(
        None, validation_alias=AliasChoices("context_id", "contextId")
    )
    close_context: bool | None = None
    close_socket: bool | None = None


@dataclass(eq=False)
class _Segment:
    """One utterance of the session."""

    utterance_id: str
    context: _Context
    chars: CharTimes = field(default_factory=CharTimes)
    began_ms: float = 0.0
    """Where the alignment of the next message begins."""
    rate: int = 1
    width: int | None = None
    """Bytes of a sample; None for compressed audio."""


@dataclass(eq=False)
class _Context:
    """What belongs to one id of the client."""

    name: str | None
    options: dict[str, Any] = field(default_factory=dict)
    open: _Segment | None = None
    """Takes text."""
    live: list[_Segment] = field(default_factory=list)
    """Utterances whose end has not come, the open one included."""
    unflushed: bool = False
    ending: bool = False


class _ElevenLabsCodec(Codec):
    """What both sockets have in common.

    Args:
        options: Of every utterance.
        inactivity_s: How long the client may say nothing while nothing is spoken.
    """

    def __init__(self, options: dict[str, Any], inactivity_s: float) -> None:
        super().__init__()
        self._options = options
        self._inactivity_s = inactivity_s
        self._contexts: dict[str | None, _Context] = {}
        self._segments: dict[str, _Segment] = {}
        self._by_number: dict[int, _Segment] = {}
        self._ids = count(1)

    @property
    def patience_s(self) -> float | None:
        """See `Codec.patience_s`."""
        return None if self._segments else self._inactivity_s

    def timed_out(self) -> None:
        """See `Codec.timed_out`."""
        message = f"no message came for {self._inactivity_s:g} s"
        self._fail(None, "input_timeout_exceeded", message, _POLICY)
        self.part(_POLICY, "input_timeout_exceeded")

    def from_peer(self, frame: str | bytes) -> None:
        """See `Codec.from_peer`."""
        try:
            self._handle(parse_body(ClientMessage, frame))
        except VoiceStreamError as error:
            said = error_json(error)
            self._fail(None, said["code"], said["message"], _POLICY)
            self.part(_POLICY, said["code"])

    def on_message(self, message: ServerMessage) -> None:
        """See `Codec.on_message`."""
        match message:
            case UtteranceStarted() if (begun := self._segments.get(message.id)) is not None:
                begun.rate, begun.width = message.sample_rate, message.bytes_per_sample
                self._by_number[message.number] = begun
            case Marks() if (marked := self._segments.get(message.id)) is not None:
                marked.chars.add_words(message.words)
            case UtteranceDone() if (done := self._segments.get(message.id)) is not None:
                self._forget(done)
                self._finish_if_over(done.context)
            case ErrorMessage() if message.id is not None:
                if (failed := self._segments.get(message.id)) is not None:
                    self._failed(failed.context, message)

    def on_audio(self, header: AudioHeader, data: bytes) -> None:
        """See `Codec.on_audio`."""
        segment = self._by_number.get(header.number)
        if segment is None:
            return
        samples = header.sample + (len(data) // segment.width if segment.width else 0)
        chars = segment.chars.take()
        if header.last:
            chars += segment.chars.finish(samples * 1000 / segment.rate)
        if data or chars:
            timed = _alignment(chars, segment.began_ms)
            segment.began_ms = chars[-1].end_ms if chars else segment.began_ms
            audio = base64.b64encode(data).decode("ascii") if data else None
            self._tell(
                segment.context,
                audio=audio,
                isFinal=None,
                alignment=timed,
                normalizedAlignment=timed,
            )

    def _handle(self, message: ClientMessage) -> None:
        raise NotImplementedError

    def _write(self, context: _Context, text: str) -> None:
        """Give text to a context. White space opens no utterance: it keeps the connection alive."""
        if context.open is None:
            if not text.strip():
                return
            for other in self._contexts.values():
                self._end_segment(other)
            segment = _Segment(f"u{next(self._ids)}", context)
            self._segments[segment.utterance_id] = context.open = segment
            context.live.append(segment)
            options = {**self._options, **context.options}
            self.ask("utterance.start", id=segment.utterance_id, **options)
        context.open.chars.add_text(text)
        context.unflushed = True
        self.ask("text.delta", id=context.open.utterance_id, text=text)

    def _flush(self, context: _Context) -> None:
        context.unflushed = False
        if context.open is not None:
            self.ask("text.flush", id=context.open.utterance_id)

    def _set_up(self, context: _Context, settings: VoiceSettings | None) -> None:
        if settings is not None:
            context.options = {"speed": limited_speed(settings.speed)}

    def _end(self, context: _Context) -> None:
        """No more text; the final message comes behind the audio."""
        context.ending = True
        self._end_segment(context)
        self._finish_if_over(context)

    def _end_segment(self, context: _Context) -> None:
        if context.open is not None:
            self.ask("utterance.end", id=context.open.utterance_id)
            context.open = None

    def _stop(self, context: _Context) -> None:
        """Say nothing more of a context."""
        for segment in tuple(context.live):
            self.ask("utterance.cancel", id=segment.utterance_id)
            self._forget(segment)
        self._end(context)

    def _forget(self, segment: _Segment) -> None:
        context = segment.context
        context.live.remove(segment)
        context.open = None if context.open is segment else context.open
        self._segments.pop(segment.utterance_id)
        self._by_number = {n: known for n, known in self._by_number.items() if known is not segment}

    def _finish_if_over(self, context: _Context) -> None:
        if context.ending and not context.live:
            self._contexts.pop(context.name, None)
            self._tell(context, audio=None, isFinal=True)
            self._over()

    def _over(self) -> None:
        """A context has ended."""
        raise NotImplementedError

    def _failed(self, context: _Context, error: ErrorMessage) -> None:
        code = _CLOSE_CODES.get(error.code, _POLICY)
        self._fail(context, error.code, error.message, code)
        for segment in tuple(context.live):
            if segment.utterance_id != error.id:
                self.ask("utterance.cancel", id=segment.utterance_id)
            self._forget(segment)

    def _fail(self, context: _Context | None, error: str, message: str, code: int) -> None:
        self._tell(context, message=message, error=error, code=code)

    def _tell(self, context: _Context | None, **fields: Any) -> None:
        if context is not None and context.name is not None:
            # Both spellings are in use among clients.
            fields |= {"contextId": context.name, "context_id": context.name}
        self.tell(**fields)


class StreamInputCodec(_ElevenLabsCodec):
    """One text a connection; an empty text ends both."""

    def __init__(self, options: dict[str, Any], inactivity_s: float) -> None:
        super().__init__(options, inactivity_s)
        self._context = self._contexts[None] = _Context(None)

    def _handle(self, message: ClientMessage) -> None:
        context = self._context
        if context.ending:
            return
        self._set_up(context, message.voice_settings)
        if message.text:
            self._write(context, message.text)
        if message.flush:
            self._flush(context)
        if message.text == "":
            self._end(context)

    def _over(self) -> None:
        self.part(_NORMAL, "")

    def _failed(self, context: _Context, error: ErrorMessage) -> None:
        super()._failed(context, error)
        self.part(_CLOSE_CODES.get(error.code, _POLICY), error.code)


class MultiStreamCodec(_ElevenLabsCodec):
    """Many texts a connection, each with an id."""

    def __init__(self, options: dict[str, Any], inactivity_s: float) -> None:
        super().__init__(options, inactivity_s)
        self._closing = False

    def _handle(self, message: ClientMessage) -> None:
        if message.close_socket:
            self._closing = True
            for context in tuple(self._contexts.values()):
                self._end(context)
            self._over()
        elif message.context_id is None and not message.text:
            return
        elif message.close_context:
            self._close(message.context_id)
        else:
            self._speak(message)

    def _close(self, name: str | None) -> None:
        """End a context: behind its audio when all of it was flushed, else at once.

        A context that is closed once more is interrupted.
        """
        context = self._contexts.get(name)
        if context is None:
            self._tell(_Context(name), audio=None, isFinal=True)
        elif context.unflushed or context.ending:
            self._stop(context)
        else:
            self._end(context)

    def _speak(self, message: ClientMessage) -> None:
        name = message.context_id
        context = self._contexts.get(name)
        if context is None or context.ending:
            if not message.text:
                return
            if len(self._contexts) >= MAX_CONTEXTS:
                text = f"at most {MAX_CONTEXTS} contexts can be open"
                self._fail(_Context(name), "max_active_conversations", text, _POLICY)
                return
            context = self._contexts[name] = _Context(name)
        self._set_up(context, message.voice_settings)
        if message.text:
            self._write(context, message.text)
        if message.flush:
            self._flush(context)

    def _over(self) -> None:
        if self._closing and not self._contexts:
            self.part(_NORMAL, "")

    def _failed(self, context: _Context, error: ErrorMessage) -> None:
        super()._failed(context, error)
        self._end(context)


def _alignment(chars: Sequence[CharTime], began_ms: float) -> dict[str, Any] | None:
    """The times from the end of the alignment before, so that clients may add them up."""
    if not chars:
        return None
    starts = [round(char.start_ms - began_ms) for char in chars]
    ends = [*starts[1:], round(chars[-1].end_ms - began_ms)]
    return {
        "chars": [char.char for char in chars],
        "charStartTimesMs": starts,
        "charDurationsMs": [end - start for start, end in zip(starts, ends, strict=True)],
    }
