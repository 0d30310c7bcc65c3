"""Golden transcripts of other protocols' codecs, read line by line.

The first line names the codec. `peer` and `session` are frames that come in; `asked` is the next
message for the session, `told` the next frame for the peer (`told_hex` a binary one, `told_event`
one of Wyoming as [type, data, payload]); `audio` is a frame of the session as [number, first
sample, last, hex]; `silence` is a peer that says nothing for the stated seconds; `farewell` is how
the connection is closed. Whatever is left at the end is a failure.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wyoming.event

from cosyvoice_stream.server.dashscope_codec import DashScopeCodec
from cosyvoice_stream.server.elevenlabs_codec import MultiStreamCodec, StreamInputCodec
from cosyvoice_stream.server.vendor_socket import Codec
from cosyvoice_stream.server.wire import AudioHeader, parse_client_message
from cosyvoice_stream.server.wyoming_codec import WyomingCodec

pytestmark = pytest.mark.protocol

FOLDER = Path(__file__).parent / "vendor_transcripts"
CODECS: dict[str, Callable[[], Codec]] = {
    "stream-input": lambda: StreamInputCodec({"voice": "beep"}, 20),
    "dashscope": lambda: DashScopeCodec({"reader": "boop"}, lambda: "request-1"),
    "wyoming": lambda: WyomingCodec({"tts": []}),
    "multi-stream-input": lambda: MultiStreamCodec({"voice": "beep"}, 20),
}
STARTED = {
    "type": "utterance.started",
    "voice": "beep",
    "seed": 1,
    "encoding": "pcm_s16le",
    "sample_rate": 1000,
    "channels": 1,
    "bytes_per_sample": 2,
    "byte_order": "little",
    "mime": "audio/pcm",
}
"""What `session` lines of this type leave out."""
DONE = {"type": "utterance.done", "audio_ms": 0, "first_audio_ms": 0, "rtf": 0, "characters": 0}


def raw(frame: Any) -> str:
    return frame if isinstance(frame, str) else json.dumps(frame)


def read_event(frame: str | bytes) -> list[Any]:
    """Type, data and payload in hex of an event of the Wyoming protocol, read by its own client."""
    assert isinstance(frame, bytes)
    event = wyoming.event.read_event(io.BytesIO(frame))
    assert event is not None
    return [event.type, event.data, (event.payload or b"").hex()]


def play(codec: Codec, line: dict[str, Any]) -> None:
    ((kind, value),) = line.items()
    if kind == "peer":
        codec.from_peer(raw(value))
    elif kind == "peer_hex":
        codec.from_peer(bytes.fromhex(value))
    elif kind == "session":
        missing = {"utterance.started": STARTED, "utterance.done": DONE}.get(value["type"], {})
        codec.from_session(json.dumps({**missing, **value}))
    elif kind == "audio":
        number, sample, last, data = value
        codec.from_session(AudioHeader(number, sample, last).pack() + bytes.fromhex(data))
    elif kind == "silence":
        assert codec.patience_s == value
        codec.timed_out()
    elif kind == "asked":
        asked = codec.to_session.popleft()
        assert json.loads(asked) == value
        parse_client_message(asked)
    elif kind == "told_event":
        assert read_event(codec.to_peer.popleft()) == value
    elif kind == "told":
        assert json.loads(codec.to_peer.popleft()) == value
    elif kind == "told_hex":
        assert codec.to_peer.popleft() == bytes.fromhex(value)
    elif kind == "farewell":
        assert codec.farewell is not None
        assert list(codec.farewell) == value
    else:
        raise AssertionError(f"unknown kind of line: {kind}")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    codec = CODECS[lines[0]["codec"]]()
    for place, line in enumerate(lines[1:], start=2):
        try:
            play(codec, line)
        except (AssertionError, IndexError) as error:
            raise AssertionError(f"{path.name}, line {place}: {error}") from error
    assert not codec.to_session
    assert not codec.to_peer
    assert (codec.farewell is not None) == any("farewell" in line for line in lines)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "frame", ["", "{", "[1]", "null", '{"text": 5}', "\ud800", "[" * 9999, b"\x00"]
)
def test_hostile_frames_are_answered(name: str, frame: str | bytes) -> None:
    codec = CODECS[name]()
    codec.from_peer(frame)
    assert not codec.to_session
    assert len(codec.to_peer) == 1
    assert codec.farewell is not None or name == "wyoming"
