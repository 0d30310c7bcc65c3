import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.errors import EngineBusy, SynthesisFailed
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.protocol_events import (
    Arrived,
    RecordingAudio,
    RecordingBegun,
    RecordingCommitted,
    RecordingDropped,
    Stopped,
)
from cosyvoice_stream.server.speech import AudioOut, Done, MarksOut, Started
from cosyvoice_stream.server.utterance import State
from cosyvoice_stream.server.wire import (
    AudioHeader,
    EngineSummary,
    Limits,
    VisemeTime,
    WordTime,
    parse_server_message,
)
from cosyvoice_stream.types import FLUSH

pytestmark = pytest.mark.unit

ENGINE = EngineSummary(
    name="fake", sample_rate=1000, languages=["en"], features=[], description="d", voices=[]
)
RATE = 1000


class Wire:
    """A protocol with a client on one side and a scripted speaker on the other."""

    def __init__(self, **options):
        self.protocol = SessionProtocol("s-1", ENGINE, **options)
        self.now = 10.0

    def client(self, **message):
        self.protocol.receive_text(json.dumps(message), self.now)
        return self

    def out(self):
        """All frames that wait: dicts, and (header, audio) pairs."""
        return [
            json.loads(frame)
            if isinstance(frame, str)
            else (AudioHeader.unpack(frame), frame[AudioHeader.SIZE :])
            for frame in self.protocol.data_to_send(self.now)
        ]

    def start_speaking(self, number=1):
        utterance = next(u for u in self.protocol._book.live if u.number == number)
        self.protocol.send_started(
            utterance,
            Started("beep", 7, "pcm_s16le", RATE, 1, 2, "little", "audio/L16", ("w",)),
        )
        return utterance

    def audio(self, utterance, first, end, *, last=False):
        self.protocol.send_audio(utterance, AudioOut(b"\1\2" * (end - first), first, end, last))

    def words(self, utterance, *words):
        self.protocol.send_marks(
            utterance,
            MarksOut(
                tuple(
                    WordTime(text="w", char_start=0, char_end=end, start_ms=0, end_ms=ms)
                    for end, ms in words
                ),
                (VisemeTime(viseme="aa", mouth_open=0.5, start_ms=0, end_ms=1),),
            ),
        )


def codes(frames):
    return [frame.get("code", frame["type"]) for frame in frames if isinstance(frame, dict)]


def test_greets_with_everything_a_client_needs():
    wire = Wire()
    wire.protocol.send_ready()
    (ready,) = wire.out()
    assert (ready["type"], ready["protocol"]) == ("session.ready", "cosyvoice-stream.v1")
    assert ready["engine"]["name"] == "fake"
    assert ready["limits"]["max_utterances"] == 64
    assert ready["settings"]["output"] == {
        "encoding": "pcm_s16le",
        "sample_rate": 24000,
        "frame_ms": 0,
        "lead_ms": 0,
        "buffer_ms": 0,
    }


def test_one_utterance_from_start_to_done():
    wire = Wire()
    wire.client(type="speak", id="a", text="Hi", marks=["word"])
    assert [type(event) for event in wire.protocol.events()] == [Arrived]
    utterance = wire.start_speaking()
    assert wire.protocol.front is utterance
    assert wire.protocol.take_text(utterance) == "Hi"
    assert wire.protocol.take_text(utterance) is None
    assert utterance.text_is_complete
    wire.words(utterance, (2, 3.0))
    wire.audio(utterance, 0, 3)
    wire.audio(utterance, 3, 3, last=True)
    wire.protocol.send_done(utterance, Done(3.0, 1.5, 0.25, 2))
    assert wire.protocol.front is None
    started, marks, first, last, done = wire.out()
    assert started["number"] == 1
    assert (started["sample_rate"], started["seed"], started["warnings"]) == (RATE, 7, ["w"])
    assert marks["words"][0]["char_end"] == 2
    assert marks["visemes"] == []
    assert first == (AudioHeader(1, 0), b"\1\2" * 3)
    assert last == (AudioHeader(1, 3, True), b"")
    assert done == {
        "type": "utterance.done",
        "id": "a",
        "audio_ms": 3.0,
        "first_audio_ms": 1.5,
        "rtf": 0.25,
        "characters": 2,
    }
    assert utterance.state is State.DONE


def test_utterances_are_numbered_and_spoken_in_the_order_of_their_start():
    wire = Wire()
    wire.client(type="utterance.start", id="a").client(type="speak", id="b", text="x")
    first = wire.protocol.front
    assert (first.id, first.number) == ("a", 1)
    wire.protocol.send_done(first, Done(0, None, None, 0))
    assert (wire.protocol.front.id, wire.protocol.front.number) == ("b", 2)


def test_settings_of_the_session_and_of_the_utterance():
    wire = Wire(warn=lambda settings: [f"speed {settings.speed}"])
    wire.client(type="speak", id="a", text="")
    wire.client(type="session.update", speed=1.5, output={"sample_rate": 8000})
    wire.client(type="speak", id="b", text="", speed=2, clean=False)
    wire.client(type="session.update", speed=None)
    wire.client(type="utterance.start", id="c", text={"normalize": False})
    a, b, c = wire.protocol._book.live
    assert [u.settings.speed for u in (a, b, c)] == [1.0, 2.0, 1.0]
    assert [u.settings.output.sample_rate for u in (a, b, c)] == [24000, 8000, 8000]
    assert (b.settings.text.clean, c.settings.text.normalize) == (False, False)
    updated = wire.out()
    assert [frame["warnings"] for frame in updated] == [["speed 1.5"], ["speed 1.0"]]
    assert updated[0]["settings"]["speed"] == 1.5


def test_a_refused_update_changes_nothing():
    wire = Wire()
    wire.client(type="session.update", speed=9).client(type="session.update", voice="v")
    refused, updated = wire.out()
    assert refused["code"] == "invalid_option"
    assert "id" not in refused
    assert (updated["settings"]["speed"], updated["settings"]["voice"]) == (1.0, "v")


def test_text_arrives_in_order_with_its_flushes():
    wire = Wire()
    wire.client(type="utterance.start", id="a")
    for text in ("Hel", "lo", "", "."):
        wire.client(type="text.delta", id="a", text=text)
    wire.client(type="text.flush", id="a").client(type="text.flush", id="a")
    wire.client(type="text.delta", id="a", text="Bye").client(type="utterance.end", id="a")
    utterance = wire.protocol.front
    taken = list(iter(lambda: wire.protocol.take_text(utterance), None))
    assert taken == ["Hello.", FLUSH, "Bye"]
    assert wire.out() == []


def test_long_text_is_taken_in_pieces():
    wire = Wire()
    text = "".join(chr(0x4E00 + i % 1000) for i in range(5000))
    wire.client(type="speak", id="a", text=text)
    pieces = list(iter(lambda: wire.protocol.take_text(wire.protocol.front), None))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 1024


# Cancelling


def cancelled(wire):
    return [f for f in wire.out() if isinstance(f, dict) and f["type"] == "utterance.cancelled"]


def test_cancel_before_the_first_audio():
    wire = Wire()
    wire.client(type="speak", id="a", text="Hello").client(type="utterance.cancel", id="a")
    assert [type(event) for event in wire.protocol.events()] == [Arrived, Stopped]
    assert wire.protocol.front is None
    assert wire.out() == [
        {
            "type": "utterance.cancelled",
            "id": "a",
            "sent_ms": 0.0,
            "played_ms": 0.0,
            "played_estimated": True,
            "spoken_text": "",
        }
    ]


def test_cancel_in_the_middle_drops_what_waits_and_nothing_follows():
    wire = Wire()
    wire.client(type="speak", id="a", text="one two three")
    utterance = wire.start_speaking()
    wire.words(utterance, (3, 40.0), (7, 80.0), (13, 120.0))
    wire.audio(utterance, 0, 100)
    wire.audio(utterance, 100, 200)
    assert len([wire.protocol.take(wire.now) for _ in range(2)]) == 2  # started, first frame
    wire.now += 0.085
    wire.client(type="utterance.cancel", id="a")
    wire.audio(utterance, 200, 300)
    wire.words(utterance, (20, 400.0))
    wire.protocol.send_done(utterance, Done(300, 1, 1, 13))
    wire.protocol.send_failed(utterance, SynthesisFailed("late"))
    (header, _), *answers = wire.out()
    assert header == AudioHeader(1, 100, last=True)
    assert answers == [
        {
            "type": "utterance.cancelled",
            "id": "a",
            "sent_ms": 105.0,
            "played_ms": 85.0,
            "played_estimated": True,
            "spoken_text": "one two",
        }
    ]
    assert wire.protocol.stream_bytes == 0


def test_cancel_while_the_end_still_waits_for_the_transport():
    wire = Wire()
    wire.client(type="speak", id="a", text="x")
    utterance = wire.start_speaking()
    wire.audio(utterance, 0, 50, last=True)
    wire.protocol.send_done(utterance, Done(50, 1, 1, 1))
    wire.client(type="utterance.cancel", id="a")
    assert codes(wire.out()) == ["utterance.cancelled"]
    assert utterance.state is State.CANCELLED


def test_cancel_after_the_end_gives_the_positions():
    wire = Wire()
    wire.client(type="speak", id="a", text="one two")
    utterance = wire.start_speaking()
    wire.words(utterance, (3, 500.0), (7, 1000.0))
    wire.audio(utterance, 0, 1000, last=True)
    wire.protocol.send_done(utterance, Done(1000, 1, 1, 7))
    wire.out()
    wire.now += 0.6  # the listener is still playing
    (answer,) = cancelled(wire.client(type="utterance.cancel", id="a"))
    assert (answer["sent_ms"], answer["played_ms"]) == (1000.0, 600.0)
    assert answer["spoken_text"] == "one"
    wire.now += 5
    assert cancelled(wire.client(type="utterance.cancel", id="a")) == [answer]
    assert utterance.state is State.DONE


def test_playback_makes_the_answer_exact():
    wire = Wire()
    wire.client(type="speak", id="a", text="one two")
    utterance = wire.start_speaking()
    wire.words(utterance, (3, 50.0), (7, 90.0))
    wire.audio(utterance, 0, 100)
    wire.out()
    wire.now += 9
    wire.client(type="playback", id="a", played_ms=55.5)
    (answer,) = cancelled(wire.client(type="utterance.cancel", id="a"))
    assert (answer["played_ms"], answer["played_estimated"]) == (56.0, False)
    assert answer["spoken_text"] == "one"


def test_cancel_twice_gives_the_same_answer():
    wire = Wire()
    wire.client(type="speak", id="a", text="x").client(type="utterance.cancel", id="a")
    wire.now += 1
    wire.client(type="utterance.cancel", id="a")
    first, second = wire.out()
    assert first == second
    assert sum(isinstance(event, Stopped) for event in wire.protocol.events()) == 1


def test_cancel_all_and_cancel_nothing():
    wire = Wire()
    for name in "abc":
        wire.client(type="utterance.start", id=name)
    wire.client(type="utterance.cancel")
    assert [frame["id"] for frame in wire.out()] == ["a", "b", "c"]
    assert wire.protocol.live == 0
    (nothing,) = wire.client(type="utterance.cancel").out()
    assert nothing == {
        "type": "utterance.cancelled",
        "id": None,
        "sent_ms": 0.0,
        "played_ms": 0.0,
        "played_estimated": False,
        "spoken_text": "",
    }


def test_cancel_of_an_unknown_id():
    (answer,) = Wire().client(type="utterance.cancel", id="zz").out()
    assert (answer["code"], answer["id"]) == ("unknown_utterance", "zz")


def test_a_cancel_overtakes_the_audio_of_others():
    wire = Wire()
    wire.client(type="speak", id="a", text="x").client(type="speak", id="b", text="y")
    utterance = wire.start_speaking()
    wire.audio(utterance, 0, 10)
    wire.client(type="utterance.cancel", id="b")
    frames = wire.out()
    assert codes(frames) == ["utterance.cancelled", "utterance.started"]
    assert isinstance(frames[-1], tuple)


def test_an_id_may_be_used_again_after_its_end():
    wire = Wire()
    wire.client(type="speak", id="a", text="x").client(type="utterance.cancel", id="a")
    wire.client(type="speak", id="a", text="y")
    assert (wire.protocol.front.number, wire.protocol.front.state) == (2, State.CLOSED)
    assert codes(wire.out()) == ["utterance.cancelled"]


# Mistakes


def test_an_error_never_looks_like_the_end_of_a_live_utterance():
    wire = Wire()
    wire.client(type="utterance.start", id="a")
    wire.client(type="speak", id="a", text="again")
    wire.client(type="speak", id="a", text=7)
    wire.client(type="text.delta", id="a", text=7)
    wire.client(type="utterance.end", id="a").client(type="utterance.end", id="a")
    wire.client(type="text.delta", id="a", text="late")
    frames = wire.out()
    assert codes(frames) == [
        "duplicate_utterance",
        "invalid_message",
        "invalid_message",
        "invalid_state",
        "invalid_state",
    ]
    assert not any("id" in frame for frame in frames)
    assert wire.protocol.front.id == "a"


def test_an_utterance_that_cannot_be_opened_is_named():
    wire = Wire(limits=Limits(max_utterances=2))
    wire.client(type="speak", id="wrong", text="x", speed="fast")
    wire.client(type="speak", id="range", text="x", speed=9)
    wire.client(type="utterance.start", id="format", output={"encoding": "gsm"})
    for name in ("a", "b", "full"):
        wire.client(type="utterance.start", id=name)
    assert [(frame["code"], frame["id"]) for frame in wire.out()] == [
        ("invalid_message", "wrong"),
        ("invalid_option", "range"),
        ("unsupported_format", "format"),
        ("limit_exceeded", "full"),
    ]
    assert wire.protocol.live == 2


def test_text_for_an_utterance_that_has_just_ended_is_no_mistake():
    wire = Wire()
    wire.client(type="utterance.start", id="a").client(type="utterance.cancel", id="a")
    wire.client(type="utterance.start", id="b")
    wire.protocol.send_failed(wire.protocol.front, EngineBusy(2.5))
    wire.out()
    for name in "ab":
        wire.client(type="text.delta", id=name, text="x").client(type="text.flush", id=name)
        wire.client(type="utterance.end", id=name)
    assert wire.out() == []


def test_text_for_an_unknown_utterance():
    wire = Wire()
    wire.client(type="text.delta", id="a", text="x").client(type="utterance.end", id="a")
    wire.client(type="playback", id="a", played_ms=1)
    assert [(frame["code"], frame["id"]) for frame in wire.out()] == [
        ("unknown_utterance", "a")
    ] * 3


def test_failure_comes_behind_the_audio_that_was_made():
    wire = Wire()
    wire.client(type="speak", id="a", text="x")
    utterance = wire.start_speaking()
    wire.audio(utterance, 0, 10)
    wire.protocol.send_failed(utterance, EngineBusy(2.5))
    frames = wire.out()
    assert isinstance(frames[1], tuple)
    assert frames[2] == {
        "type": "error",
        "id": "a",
        "code": "busy",
        "message": "all synthesis slots are taken",
        "how_to_fix": "try again in 2.5 s",
        "retry_after_ms": 2500,
    }
    assert utterance.state is State.FAILED


@pytest.mark.parametrize(
    ("limits", "texts", "what"),
    [
        (Limits(max_message_chars=5), ["123456"], "one message"),
        (Limits(max_utterance_chars=5), ["123", "456"], "one utterance"),
        (Limits(max_live_chars=5), ["123", "456"], "the live utterances"),
    ],
)
def test_too_much_text_ends_that_utterance_only(limits, texts, what):
    wire = Wire(limits=limits)
    wire.client(type="utterance.start", id="other").client(type="utterance.start", id="a")
    for text in texts:
        wire.client(type="text.delta", id="a", text=text)
    (error,) = wire.out()
    assert (error["code"], error["id"]) == ("limit_exceeded", "a")
    assert what in error["message"]
    assert wire.protocol.live == 1
    wire.client(type="text.delta", id="a", text="more").client(type="speak", id="b", text="12345")
    assert wire.out() == []


def test_a_megabyte_of_text_in_one_message():
    wire = Wire()
    wire.client(type="speak", id="a", text="x" * 1_000_000).client(type="speak", id="b", text="y")
    (error,) = wire.out()
    assert (error["code"], error["id"]) == ("limit_exceeded", "a")
    assert wire.protocol.front.id == "b"


def test_raw_framing_has_no_headers_and_one_utterance_at_a_time():
    wire = Wire(raw_framing=True)
    wire.client(type="speak", id="a", text="x").client(type="speak", id="b", text="y")
    utterance = wire.start_speaking()
    wire.audio(utterance, 0, 2)
    wire.audio(utterance, 2, 2, last=True)
    wire.protocol.send_done(utterance, Done(2, 1, 1, 1))
    refused, started, audio, done = wire.protocol.data_to_send(wire.now)
    assert json.loads(refused)["code"] == "invalid_state"
    assert json.loads(refused)["id"] == "b"
    assert audio == b"\1\2\1\2"
    assert json.loads(done)["type"] == "utterance.done"
    assert wire.client(type="speak", id="b", text="y").out() == []


def test_ended_utterances_are_forgotten_after_a_while():
    wire = Wire()
    for number in range(200):
        wire.client(type="speak", id=f"u{number}", text="x")
        wire.client(type="utterance.cancel", id=f"u{number}")
    wire.out()
    wire.client(type="utterance.cancel", id="u199").client(type="utterance.cancel", id="u0")
    kept, forgotten = wire.out()
    assert kept["type"] == "utterance.cancelled"
    assert forgotten["code"] == "unknown_utterance"


def test_what_is_remembered_is_bounded_in_characters():
    wire = Wire()
    for number in range(10):
        wire.client(type="speak", id=f"u{number}", text="x" * 60_000)
        wire.client(type="utterance.cancel", id=f"u{number}")
    assert len(wire.protocol._book._ended) == 1


def test_reading_pauses_when_answers_are_not_taken():
    wire = Wire()
    asked = 0
    while not wire.protocol.reading_paused:
        wire.client(type="nonsense")
        asked += 1
    assert asked < 2000
    wire.protocol.take(wire.now)
    assert not wire.protocol.reading_paused


def test_shut_down_refuses_the_new_and_abandon_ends_the_live():
    wire = Wire()
    wire.client(type="speak", id="a", text="x")
    wire.protocol.shut_down()
    wire.protocol.shut_down()
    wire.client(type="speak", id="b", text="y")
    wire.protocol.abandon(wire.protocol.front and EngineBusy(1))
    told, refused, ended = wire.out()
    assert (told["code"], "id" in told) == ("shutting_down", False)
    assert (refused["code"], refused["id"]) == ("shutting_down", "b")
    assert (ended["id"], wire.protocol.live) == ("a", 0)


# Recordings


def begin(wire, **options):
    return wire.client(type="voice.begin", **options)


def test_a_recording_from_begin_to_commit():
    wire = Wire()
    begin(wire, name="Me", input={"encoding": "mulaw", "sample_rate": 8000})
    wire.protocol.receive_binary(b"abc")
    wire.client(type="voice.commit")
    begun, audio, committed = wire.protocol.events()
    assert isinstance(begun, RecordingBegun)
    assert (begun.message.name, begun.message.input.sample_rate) == ("Me", 8000)
    assert audio == RecordingAudio(b"abc")
    assert committed == RecordingCommitted()
    begin(wire)
    wire.client(type="voice.cancel")
    assert codes(wire.out()) == ["invalid_state", "invalid_state"]
    wire.protocol.recording_over()
    assert codes(begin(wire).out()) == []


def test_recording_messages_at_the_wrong_time():
    wire = Wire()
    wire.client(type="voice.commit").client(type="voice.cancel")
    wire.protocol.receive_binary(b"noise")
    begin(wire)
    begin(wire)
    assert codes(wire.out()) == ["invalid_state"] * 3
    wire.client(type="voice.cancel")
    assert wire.protocol.events()[-1] == RecordingDropped()
    wire.protocol.receive_binary(b"late")
    assert codes(wire.out()) == ["invalid_state"]


def test_a_recording_that_is_too_long_is_dropped_once():
    wire = Wire(limits=Limits(max_recording_s=1.0))
    begin(wire, input={"sample_rate": 8000})
    wire.protocol.receive_binary(bytes(16_000))
    for _ in range(5):
        wire.protocol.receive_binary(b"12")
    wire.client(type="voice.commit")
    assert codes(wire.out()) == ["limit_exceeded", "invalid_state"]
    assert isinstance(wire.protocol.events()[-1], RecordingDropped)
    assert begin(wire).out() == []


@pytest.mark.parametrize(
    "form", [{"encoding": "mp3"}, {"sample_rate": 7999}, {"sample_rate": 48_001}]
)
def test_recording_formats_that_are_not_available(form):
    assert codes(begin(Wire(), input=form).out()) == ["unsupported_format"]


# Anything


MESSAGES = st.one_of(
    st.builds(lambda i: {"type": "utterance.start", "id": i}, st.sampled_from("abc")),
    st.builds(lambda i: {"type": "speak", "id": i, "text": "x y"}, st.sampled_from("abc")),
    st.builds(lambda i: {"type": "text.delta", "id": i, "text": "z"}, st.sampled_from("abc")),
    st.builds(lambda i: {"type": "utterance.end", "id": i}, st.sampled_from("abc")),
    st.builds(lambda i: {"type": "utterance.cancel", "id": i}, st.sampled_from("abc")),
    st.just({"type": "utterance.cancel"}),
    st.sampled_from(["speak on", "take", "finish", "fail"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=40))
def test_whatever_happens_no_frame_follows_the_end_and_each_end_comes_once(steps):
    wire = Wire()
    frames, started = [], {}
    for step in steps:
        wire.now += 0.01
        front = wire.protocol.front
        if isinstance(step, dict):
            wire.client(**step)
        elif step == "take":
            frames += [frame for frame in [wire.protocol.take(wire.now)] if frame is not None]
        elif front is not None:
            if front.number not in started:
                started[front.number] = wire.start_speaking(front.number)
            if step == "speak on":
                wire.audio(front, 0, 10)
            elif step == "finish":
                wire.protocol.send_done(front, Done(1, 1, 1, 1))
            else:
                wire.protocol.send_failed(front, SynthesisFailed("f"))
    frames += wire.protocol.data_to_send(wire.now)

    numbers, ended = {}, set()
    for frame in frames:
        if isinstance(frame, bytes):
            assert AudioHeader.unpack(frame).number not in ended
            continue
        message = parse_server_message(frame)
        assert message.to_json() == frame
        if message.type == "utterance.started":
            numbers[message.id] = message.number
            assert message.number not in ended
        elif message.type in ("utterance.done", "utterance.cancelled", "error"):
            number = numbers.pop(getattr(message, "id", None), None)
            if number is not None:
                assert number not in ended
                ended.add(number)
