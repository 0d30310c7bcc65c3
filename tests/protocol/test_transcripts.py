"""Golden transcripts of docs/protocol.md, read line by line.

`client`, `client_text` and `client_hex` are frames from the client; `speech` is what the session
does; `server`, `server_audio` and `server_hex` are the frames that must leave next, in order;
`events` are all events since the last such line. Frames that are left at the end are a failure.
"""

import json
from pathlib import Path

import pytest

from cosyvoice_stream import errors
from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.server.error_map import SessionIdle
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.speech import AudioOut, Done, MarksOut, Started, WarningOut
from cosyvoice_stream.server.wire import (
    AudioHeader,
    EngineSummary,
    Limits,
    VadEvent,
    VadStart,
    WordTime,
    parse_client_message,
    parse_server_message,
)
from cosyvoice_stream.types import Flush

pytestmark = pytest.mark.protocol

FOLDER = Path(__file__).parent
TRANSCRIPTS = sorted(FOLDER.glob("transcripts/*.jsonl"))
ENGINE = EngineSummary(
    name="fake", sample_rate=1000, languages=["en"], features=[], description="d", voices=[]
)
STARTED = Started(
    "beep", 7, "pcm_s16le", 1000, 1, 2, "little", "audio/pcm;rate=1000;channels=1", ()
)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Player:
    """Plays a transcript against a protocol."""

    def __init__(self, first):
        self.protocol = SessionProtocol(
            "s-1",
            ENGINE,
            limits=Limits(**first.get("limits", {})),
            raw_framing=first.get("raw", False),
        )
        self.now = 0.0
        self.known = {}

    def play(self, line):
        for kind in (
            "now", "client", "client_text", "client_hex", "speech", "text", "events", "server",
            "server_audio", "server_hex", "shut_down", "recording", "uplink",
        ):  # fmt: skip
            if kind in line:
                getattr(self, "on_" + kind)(line)
                break
        else:
            assert "note" in line, line
        for utterance in self.protocol._book.live:
            self.known[utterance.number] = utterance

    def on_now(self, line):
        self.now = line["now"]

    def on_client(self, line):
        self.protocol.receive_text(json.dumps(line["client"]), self.now)

    def on_client_text(self, line):
        self.protocol.receive_text(line["client_text"], self.now)

    def on_client_hex(self, line):
        self.protocol.receive_binary(bytes.fromhex(line["client_hex"]))

    def on_speech(self, line):
        utterance, protocol = self.known[line["number"]], self.protocol
        if line["speech"] == "started":
            protocol.send_started(utterance, STARTED)
        elif line["speech"] == "marks":
            names = ("text", "char_start", "char_end", "start_ms", "end_ms")
            words = [WordTime(**dict(zip(names, word, strict=True))) for word in line["words"]]
            protocol.send_marks(utterance, MarksOut(tuple(words), ()))
        elif line["speech"] == "warning":
            protocol.send_warning(utterance, WarningOut(*line["arguments"]))
        elif line["speech"] == "audio":
            data = bytes.fromhex(line["hex"])
            audio = AudioOut(data, line["first"], line["end"], line["last"])
            protocol.send_audio(utterance, audio)
        elif line["speech"] == "done":
            names = ("audio_ms", "first_audio_ms", "rtf", "characters")
            protocol.send_done(utterance, Done(*(line[name] for name in names)))
        else:
            error = getattr(errors, line["error"])(*line["arguments"])
            protocol.send_failed(utterance, error)

    def on_text(self, line):
        piece = self.protocol.take_text(self.known[line["number"]])
        assert ("FLUSH" if isinstance(piece, Flush) else piece) == line["text"]

    def on_events(self, line):
        events = [
            " ".join(
                [type(event).__name__]
                + ([event.utterance.id] if hasattr(event, "utterance") else [])
            )
            for event in self.protocol.events()
        ]
        assert events == line["events"]

    def on_server(self, line):
        assert json.loads(self.protocol.take(self.now)) == line["server"]

    def on_server_audio(self, line):
        expected = line["server_audio"]
        header = AudioHeader(expected["number"], expected["sample"], expected["last"])
        assert self.protocol.take(self.now) == header.pack() + bytes.fromhex(expected["hex"])

    def on_server_hex(self, line):
        assert self.protocol.take(self.now) == bytes.fromhex(line["server_hex"])

    def on_shut_down(self, line):
        self.protocol.shut_down(SessionIdle(5) if line["shut_down"] == "idle" else None)

    def on_uplink(self, line):
        event = VadEvent(state=line["uplink"], at_ms=line["at_ms"])
        self.protocol.uplink_changed(event, VadStart(), self.now)

    def on_recording(self, line):
        self.protocol.recording_over()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_server_follows_the_transcript(path):
    steps = lines(path)
    player = Player(steps[0])
    for number, step in enumerate(steps, 1):
        try:
            player.play(step)
        except AssertionError as error:
            raise AssertionError(f"{path.name}:{number}: {error}") from error
    assert player.protocol.data_to_send(player.now) == []
    assert player.protocol.events() == []


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_client_reads_every_message_and_says_it_back(path):
    for step in lines(path):
        if "server" in step:
            message = parse_server_message(json.dumps(step["server"]))
            assert json.loads(message.to_json()) == step["server"]


def test_every_message_of_the_client_is_in_a_transcript():
    sent = {s["client"].get("type") for path in TRANSCRIPTS for s in lines(path) if "client" in s}
    assert sent >= {
        "session.update", "utterance.start", "text.delta", "text.flush", "utterance.end", "speak",
        "utterance.cancel", "playback", "voice.begin", "voice.commit", "voice.cancel",
        "vad.start", "vad.stop",
    }  # fmt: skip


def test_a_message_cut_short_anywhere_is_not_a_message():
    whole = json.dumps({"type": "speak", "id": "a", "text": "hello", "speed": 1.5})
    parse_client_message(whole)
    for length in range(len(whole)):
        with pytest.raises(InvalidMessage):
            parse_client_message(whole[:length])


def recorded_frames():
    data = (FOLDER / "audio_frames.bin").read_bytes()
    while data:
        length = int.from_bytes(data[:4], "little")
        yield data[4 : 4 + length]
        data = data[4 + length :]


def test_recorded_audio_frames_both_ways():
    for frame, fields in zip(recorded_frames(), lines(FOLDER / "audio_frames.jsonl"), strict=True):
        audio = bytes.fromhex(fields.pop("audio"))
        assert AudioHeader.unpack(frame) == AudioHeader(**fields)
        assert AudioHeader(**fields).pack() + audio == frame


def test_a_frame_shorter_than_its_header_is_refused():
    for frame in recorded_frames():
        for length in range(AudioHeader.SIZE):
            with pytest.raises(InvalidMessage):
                AudioHeader.unpack(frame[:length])
        with pytest.raises(InvalidMessage):
            AudioHeader.unpack(b"\2" + frame[1:])
