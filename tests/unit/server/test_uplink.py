"""A listener who speaks into the speech: rules, sound, and what the client is told."""

import asyncio
import json

import numpy as np
import pytest

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.protocol_events import UplinkAudio, UplinkBegun, UplinkEnded
from cosyvoice_stream.server.speech import AudioOut, Started
from cosyvoice_stream.server.uplink import UplinkEar
from cosyvoice_stream.server.wire import AudioHeader, EngineSummary, VadEvent, VadStart
from cosyvoice_stream.streaming.pcm import from_s16le, to_s16le
from support.house import House, run
from support.recordings import RATE, at_level, silence, speech

pytestmark = pytest.mark.unit

ENGINE = EngineSummary(
    name="fake", sample_rate=1000, languages=["en"], features=[], description="d", voices=[]
)
VOICE = to_s16le(np.concatenate([silence(0.3), at_level(speech(), -22)[: 2 * RATE], silence(0.6)]))


def protocol(**options):
    return SessionProtocol("s-1", ENGINE, **options)


def tell(wire, **message):
    wire.receive_text(json.dumps(message), 0.0)


def answers(wire):
    return [json.loads(frame) for frame in wire.data_to_send(0.0) if isinstance(frame, str)]


def test_ear_hears_a_voice_however_it_is_cut():
    def heard(step):
        ear = UplinkEar(VadStart())
        return [e for i in range(0, len(VOICE), step) for e in ear.push(VOICE[i : i + step])]

    whole = heard(len(VOICE))
    assert [event.state for event in whole][:2] == ["maybe_speech", "speech"]
    assert whole[-1].state == "silence"
    assert 200 < whole[0].at_ms < 700
    for step in (1, 333, 640):
        assert heard(step) == whole


def test_ear_with_a_reference_does_not_hear_the_loudspeaker():
    voice = at_level(speech(), -20)
    both = np.stack([voice * np.float32(0.1), voice], axis=1).ravel()
    ear = UplinkEar(VadStart(input={"channels": 2}))
    assert ear.push(to_s16le(both)) == []


def test_microphone_is_for_one_thing_at_a_time():
    wire = protocol()
    tell(wire, type="vad.start")
    wire.receive_binary(b"\0\0")
    tell(wire, type="voice.begin")
    tell(wire, type="voice.cancel")
    tell(wire, type="vad.start", mode=3)
    tell(wire, type="vad.stop")
    tell(wire, type="vad.stop")
    kinds = [type(event) for event in wire.events()]
    assert kinds == [UplinkBegun, UplinkAudio, UplinkBegun, UplinkEnded]
    tell(wire, type="voice.begin")
    tell(wire, type="vad.start", request_id="r")
    (first, second) = answers(wire)
    assert (first["code"], second["code"]) == ("invalid_state", "invalid_state")
    assert second["request_id"] == "r"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"input": {"sample_rate": 44_100}}, "unsupported_format"),
        ({"input": {"encoding": "opus"}}, "unsupported_format"),
        ({"input": {"channels": 3}}, "invalid_message"),
        ({"mode": 4}, "invalid_message"),
        ({"duck_db": 3}, "invalid_message"),
        ({"min_speech_ms": 0}, "invalid_message"),
    ],
)
def test_wrong_values_are_refused_and_nothing_listens(fields, code):
    wire = protocol()
    tell(wire, type="vad.start", **fields)
    wire.receive_binary(b"\0\0")
    refused, outside = answers(wire)
    assert (refused["code"], outside["code"]) == (code, "invalid_state")
    assert wire.events() == []


def test_a_huge_microphone_frame_is_refused_and_the_stream_goes_on():
    wire = protocol()
    tell(wire, type="vad.start")
    wire.receive_binary(bytes(65_537))
    wire.receive_binary(bytes(65_536))
    assert [answer["code"] for answer in answers(wire)] == ["limit_exceeded"]
    assert [type(event) for event in wire.events()] == [UplinkBegun, UplinkAudio]


def spoken(wire, encoding="pcm_s16le"):
    tell(wire, type="speak", id="a", text="Hello there")
    utterance = wire.front
    wire.send_started(
        utterance, Started("beep", 7, encoding, 8000, 1, 2, "little", "audio/pcm", ())
    )
    return utterance


def audio(wire):
    frames = [frame for frame in wire.data_to_send(0.0) if isinstance(frame, bytes)]
    return b"".join(frame[AudioHeader.SIZE :] for frame in frames)


def test_a_suspicion_turns_down_what_leaves_and_silence_brings_it_back():
    wire = protocol()
    utterance, half = spoken(wire), to_s16le(np.full(800, 0.5, np.float32))
    wire.send_audio(utterance, AudioOut(half, 0, 800, last=False))
    assert audio(wire) == half
    wire.send_audio(utterance, AudioOut(half, 800, 1600, last=False))
    maybe = VadEvent(state="maybe_speech", at_ms=0)
    wire.uplink_changed(maybe, VadStart(duck_db=-20), 0.0)
    ducked = from_s16le(audio(wire))
    assert np.abs(np.diff(ducked)).max() < 0.01
    assert ducked[-1] == pytest.approx(0.05, abs=1e-3)
    wire.uplink_changed(VadEvent(state="silence", at_ms=0), VadStart(duck_db=-20), 0.0)
    wire.send_audio(utterance, AudioOut(half, 1600, 2400, last=False))
    back = from_s16le(audio(wire))
    assert np.abs(np.diff(back)).max() < 0.01
    assert back[-1] == pytest.approx(0.5, abs=1e-3)
    wire.send_audio(utterance, AudioOut(half, 2400, 3200, last=False))
    assert audio(wire) == half


def test_compressed_audio_is_not_touched():
    wire = protocol()
    utterance = spoken(wire, "mp3")
    wire.uplink_changed(VadEvent(state="maybe_speech", at_ms=0), VadStart(), 0.0)
    wire.send_audio(utterance, AudioOut(b"abc", 0, 800, last=False))
    assert audio(wire) == b"abc"


def test_a_verdict_cancels_everything_and_says_why():
    wire = protocol()
    spoken(wire)
    tell(wire, type="speak", id="b", text="Later")
    wire.uplink_changed(VadEvent(state="speech", at_ms=120), VadStart(), 0.0)
    event, *ends = [m for m in answers(wire) if m["type"] != "utterance.started"]
    assert event == {"type": "vad.event", "state": "speech", "at_ms": 120}
    assert [(end["id"], end["reason"]) for end in ends] == [("a", "speech"), ("b", "speech")]
    assert wire.live == 0


def test_a_verdict_without_cancel_is_only_told():
    wire = protocol()
    spoken(wire)
    wire.uplink_changed(VadEvent(state="speech", at_ms=120), VadStart(cancel=False), 0.0)
    assert wire.live == 1


def test_speaking_into_the_speech_stops_it_and_the_next_answer_is_spoken():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            await gate.allow(3)
            peer.put(type="vad.start", input={"sample_rate": RATE})
            peer.put(type="speak", id="a", text="Hello wonderful world of tones")
            await peer.until(lambda peer: len(peer.frames) == 3)
            for start in range(0, len(VOICE), 640):
                peer.put(VOICE[start : start + 640])
            cancelled = await peer.message("utterance.cancelled", id="a")
            peer.put(type="vad.stop")
            await gate.open()
            peer.put(type="speak", id="b", text="Yes")
            await peer.message("utterance.done", id="b")
        assert cancelled["reason"] == "speech"
        states = [m["state"] for m in peer.messages if m["type"] == "vad.event"]
        assert states[:2] == ["maybe_speech", "speech"]

    run(test)


def test_nothing_is_left_when_the_peer_leaves_while_it_is_listened_to():
    async def test():
        async with House().open() as peer:
            peer.put(type="vad.start")
            peer.put(b"\1")
            await asyncio.sleep(0)

    run(test)
