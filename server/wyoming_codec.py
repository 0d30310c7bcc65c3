"""The Wyoming protocol of Home Assistant, without I/O: one JSON line, data and payload an event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from cosyvoice_stream.errors import InvalidMessage, VoiceStreamError
from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.error_shapes import sentence
from cosyvoice_stream.server.json_body import parse_body
from cosyvoice_stream.server.vendor_socket import Codec
from cosyvoice_stream.server.wire import (
    AudioHeader,
    ErrorMessage,
    ServerMessage,
    UtteranceDone,
    UtteranceStarted,
)
from cosyvoice_stream.version import __version__

VERSION: Final = "1.10.2"
"""Of the protocol; peers read the same fields since its beginning."""
RATE_HZ: Final = 24_000
MAX_LINE_BYTES: Final = 64 * 1024
_NORMAL: Final = 1000


class _Voice(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    name: Annotated[str, Field(max_length=128)] | None = None
    language: Annotated[str, Field(max_length=64)] | None = None


class _Speak(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    text: str = ""
    voice: _Voice | None = None
    text_format: str | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of an utterance."""
        voice = self.voice or _Voice()
        return {
            "voice": voice.name or None,
            "language": voice.language or None,
            "ssml": self.text_format == "ssml",
            "output": {"encoding": "pcm_s16le", "sample_rate": RATE_HZ},
        }


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    type: Annotated[str, Field(max_length=64)]
    data: dict[str, Any] = {}


@dataclass
class _Utterance:
    utterance_id: str
    streamed: bool
    """Its text comes in pieces."""
    number: int | None = None


def pack_event(kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """Return the bytes of an event."""
    body = json.dumps(data, ensure_ascii=False).encode() if data else b""
    head: dict[str, Any] = {"type": kind, "version": VERSION}
    if body:
        head["data_length"] = len(body)
    if payload:
        head["payload_length"] = len(payload)
    return json.dumps(head).encode() + b"\n" + body + payload


class WyomingCodec(Codec):
    """Translates one connection.

    Args:
        info: Answer to ``describe``.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__()
        self._info = info
        self._utterances: dict[str, _Utterance] = {}
        self._open: _Utterance | None = None
        """Takes text in pieces."""
        self._count = 0

    def from_peer(self, frame: str | bytes) -> None:
        """See `Codec.from_peer`. A frame is an event as JSON, its data in it."""
        try:
            self._handle(parse_body(_Event, frame))
        except VoiceStreamError as error:
            said = error_json(error)
            self._put("error", {"text": sentence(said), "code": said["code"]})

    def on_message(self, message: ServerMessage) -> None:
        """See `Codec.on_message`."""
        utterance = self._utterances.get(getattr(message, "id", None) or "")
        if utterance is None:
            return
        match message:
            case UtteranceStarted():
                utterance.number = message.number
                self._put("audio-start", _FORMAT)
            case UtteranceDone():
                self._put("audio-stop")
                self._over(utterance)
            case ErrorMessage():
                said = message.model_dump(exclude_none=True)
                self._put("error", {"text": sentence(said), "code": message.code})
                self._over(utterance)
                if not utterance.streamed:
                    # The peer waits for the end of audio that will not come.
                    self.part(_NORMAL, message.code)

    def on_audio(self, header: AudioHeader, data: bytes) -> None:
        """See `Codec.on_audio`."""
        known = any(each.number == header.number for each in self._utterances.values())
        if known and data:
            timed = {**_FORMAT, "timestamp": header.sample * 1000 // RATE_HZ}
            self._put("audio-chunk", timed, data)

    def _handle(self, event: _Event) -> None:
        match event.type:
            case "describe":
                self._put("info", self._info)
            case "ping":
                self._put("pong", {"text": event.data.get("text")})
            case "synthesize" if self._open is None:
                wanted = self._read(event)
                utterance = self._begin(wanted, streamed=False)
                if wanted.text:
                    self.ask("text.delta", id=utterance.utterance_id, text=wanted.text)
                self.ask("utterance.end", id=utterance.utterance_id)
            case "synthesize-start":
                if self._open is not None:
                    raise InvalidMessage("synthesize-stop has not come yet")
                self._open = self._begin(self._read(event), streamed=True)
            case "synthesize-chunk" if self._open is not None:
                if text := self._read(event).text:
                    self.ask("text.delta", id=self._open.utterance_id, text=text)
            case "synthesize-stop" if self._open is not None:
                if self._open.utterance_id in self._utterances:
                    self.ask("utterance.end", id=self._open.utterance_id)
                self._open = None
            case _:
                pass  # a later version of the protocol, or the whole text after its pieces

    def _read(self, event: _Event) -> _Speak:
        return parse_body(_Speak, json.dumps(event.data))

    def _begin(self, wanted: _Speak, *, streamed: bool) -> _Utterance:
        self._count += 1
        utterance = _Utterance(f"w{self._count}", streamed)
        self._utterances[utterance.utterance_id] = utterance
        self.ask("utterance.start", id=utterance.utterance_id, **wanted.options())
        return utterance

    def _over(self, utterance: _Utterance) -> None:
        del self._utterances[utterance.utterance_id]
        if utterance.streamed:
            self._put("synthesize-stopped")

    def _put(self, kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> None:
        self.to_peer.append(pack_event(kind, data, payload))


_FORMAT: Final = {"rate": RATE_HZ, "width": 2, "channels": 1}


def wyoming_info(
    engine: str, description: str, languages: list[str], voices: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return the answer to ``describe``.

    Args:
        engine: Its name.
        description: Of the engine.
        languages: BCP 47 tags that every voice speaks.
        voices: Id and name of each.
    """
    common = {
        "attribution": {"name": "cosyvoice-stream", "url": ""},
        "installed": True,
        "version": __version__,
    }
    described = [
        {**common, "name": name, "description": title, "languages": languages, "speakers": None}
        for name, title in voices
    ]
    program = {
        **common,
        "name": f"cosyvoice-stream {engine}",
        "description": description,
        "voices": described,
        "supports_synthesize_streaming": True,
    }
    others: dict[str, list[Any]] = {
        kind: [] for kind in ("asr", "handle", "intent", "wake", "mic", "snd")
    }
    return {"tts": [program], **others}
