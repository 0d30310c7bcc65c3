import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage, InvalidOption, UnsupportedFormat
from cosyvoice_stream.server import wire
from cosyvoice_stream.server.wire import (
    AudioHeader,
    ErrorMessage,
    Speak,
    UtteranceDone,
    UtteranceSettings,
    names_of,
    parse_client_message,
    parse_server_message,
    parse_speech,
)

pytestmark = pytest.mark.unit

SECRET = "what the user wrote"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("", "the message is not JSON"),
        ("{", "the message is not JSON"),
        ("[" * 100_000, "the message is not JSON"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "the message is not JSON"),
        ('{"type":"speak","id":"a","text":"\\ud800"}', "the message is not JSON"),
        ("null", "the message is not a JSON object of its type"),
        ("[1]", "the message is not a JSON object of its type"),
        ("{}", "the message has no field 'type'"),
        ('{"type":"shout"}', "the message has an unknown type"),
        ('{"type":7}', "the message has an unknown type"),
        ('{"type":"speak","id":"a"}', "the field 'text' is missing"),
        ('{"type":"speak","id":"a","text":7}', "the field 'text' is wrong: input should be a"),
        ('{"type":"speak","id":"","text":""}', "the field 'id' is wrong: string should match"),
        ('{"type":"speak","id":"ä","text":""}', "the field 'id' is wrong: string should match"),
        ('{"type":"speak","id":"a\\n","text":""}', "the field 'id' is wrong: string should"),
        ('{"type":"speak","id":"a","text":"","voise":1}', "unknown field 'voise'"),
        ('{"type":"speak","id":"a","text":"","V O":1}', "unknown field"),
        ('{"type":"speak","id":"a","text":"","output":{"rate":1}}', "unknown field 'output.rate'"),
        ('{"type":"speak","id":"a","text":"","speed":"1"}', "the field 'speed' is wrong: input"),
        ('{"type":"speak","id":"a","text":"","speed":true}', "the field 'speed' is wrong: input"),
        ('{"type":"speak","id":"a","text":"","speed":NaN}', "the field 'speed' is wrong: input"),
        ('{"type":"speak","id":"a","text":"","speed":1e999}', "the field 'speed' is wrong: input"),
        ('{"type":"speak","id":"a","text":"","seed":1.5}', "the field 'seed' is wrong: input"),
        ('{"type":"session.update","marks":["lips"]}', "the field 'marks.0' is wrong: input"),
        ('{"type":"playback","id":"a","played_ms":-1}', "the field 'played_ms' is wrong: input"),
        ('{"type":"playback","id":"a","played_ms":1e308}', "the field 'played_ms' is wrong: in"),
        ('{"type":"voice.begin","persist":"yes"}', "the field 'persist' is wrong: input"),
    ],
)
def test_mistakes_are_named(frame, message):
    with pytest.raises(InvalidMessage) as caught:
        parse_client_message(frame)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("field", ["speed", "seed", "marks", "output", "voice", "text", "id"])
def test_no_error_repeats_what_the_user_sent(field):
    frame = {"type": "speak", "id": "a", "text": "x"} | {field: [SECRET]}
    with pytest.raises(InvalidMessage) as caught:
        parse_client_message(json.dumps(frame))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_an_endless_integer_is_refused():
    with pytest.raises(InvalidMessage):
        parse_client_message('{"type":"speak","id":"a","text":"","seed":' + "9" * 5000 + "}")


def test_speak_keeps_text_and_its_options_apart():
    message = parse_client_message(
        '{"type":"speak","id":"a","text":"hi","clean":false,"speed":2,"voice":null}'
    )
    assert isinstance(message, Speak)
    assert message.text == "hi"
    assert message.changes() == {"speed": 2.0, "voice": None, "text": {"clean": False}}


def test_changes_hold_only_what_was_sent():
    message = parse_client_message('{"type":"session.update","text":{"normalize":false}}')
    assert message.changes() == {"text": {"normalize": False}}


def test_parse_speech_reads_the_http_body():
    assert parse_speech(b'{"text":"hi","speed":0.5}').changes() == {"speed": 0.5}
    with pytest.raises(InvalidMessage, match="unknown field 'id'"):
        parse_speech(b'{"text":"hi","id":"a"}')
    with pytest.raises(InvalidMessage, match="not JSON"):
        parse_speech(b"\xff\xfe")


def test_settings_merge_field_by_field():
    defaults = UtteranceSettings(voice="house")
    once = defaults.merged({"speed": 1.5, "output": {"encoding": "mulaw"}}, defaults)
    twice = once.merged({"output": {"sample_rate": 8000}, "marks": ["word", "word"]}, defaults)
    assert (twice.output.encoding, twice.output.sample_rate) == ("mulaw", 8000)
    assert (twice.speed, twice.voice, twice.marks) == (1.5, "house", ("word",))


def test_null_restores_the_default():
    defaults = UtteranceSettings(voice="house")
    changed = defaults.merged(
        {"voice": "mine", "speed": 2.0, "output": {"sample_rate": 8000, "frame_ms": 20}}, defaults
    )
    back = changed.merged({"voice": None, "output": {"frame_ms": None}}, defaults)
    assert (back.voice, back.speed) == ("house", 2.0)
    assert (back.output.sample_rate, back.output.frame_ms) == (8000, 0)
    assert changed.merged({"output": None, "speed": None, "voice": None}, defaults) == defaults


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"speed": 0.4}, InvalidOption),
        ({"speed": 2.1}, InvalidOption),
        ({"pitch": -13}, InvalidOption),
        ({"volume": 2.5}, InvalidOption),
        ({"strength": 1.1}, InvalidOption),
        ({"seed": -1}, InvalidOption),
        ({"seed": 2**32}, InvalidOption),
        ({"output": {"frame_ms": 5}}, InvalidOption),
        ({"output": {"frame_ms": 1001}}, InvalidOption),
        ({"output": {"encoding": "gsm"}}, UnsupportedFormat),
        ({"output": {"sample_rate": 11_025}}, UnsupportedFormat),
        ({"output": {"sample_rate": 44_100, "encoding": "opus"}}, UnsupportedFormat),
    ],
)
def test_settings_out_of_range_are_refused(changes, error):
    with pytest.raises(error):
        UtteranceSettings().merged(changes)


def test_options_for_the_engine():
    settings = UtteranceSettings(speed=1.5, instruct="calm", language="en")
    options = settings.to_options(seed=7)
    assert (options.speed, options.instruct, options.language, options.seed) == (
        1.5,
        "calm",
        "en",
        7,
    )
    assert UtteranceSettings(seed=3).to_options(seed=7).seed == 3


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans(), st.binary())
def test_audio_header_survives_the_wire(number, sample, last, audio):
    header = AudioHeader(number, sample, last)
    frame = header.pack() + audio
    assert len(header.pack()) == AudioHeader.SIZE == 12
    assert AudioHeader.unpack(frame) == header
    assert frame[AudioHeader.SIZE :] == audio


@given(st.binary(max_size=40))
def test_any_binary_frame_is_a_header_or_an_error(data):
    try:
        header = AudioHeader.unpack(data)
    except InvalidMessage:
        assert len(data) < 12 or data[0] != 1
    else:
        assert header.number <= 0xFFFFFFFF


@given(st.text(max_size=60))
def test_any_text_frame_is_a_message_or_an_error(frame):
    with pytest.raises(InvalidMessage):
        parse_client_message(frame)


def test_a_client_ignores_what_it_does_not_know():
    assert parse_server_message('{"type":"utterance.ducked","id":"a"}') is None
    done = '{"type":"utterance.done","id":"a","audio_ms":1,"first_audio_ms":null,"rtf":null,'
    message = parse_server_message(done + '"characters":3,"later":[1]}')
    assert message == UtteranceDone(id="a", audio_ms=1, first_audio_ms=None, rtf=None, characters=3)


@pytest.mark.parametrize("frame", ["", "[]", '{"type":"utterance.done"}', "{}"])
def test_a_client_reports_what_it_cannot_read(frame):
    with pytest.raises(InvalidMessage):
        parse_server_message(frame)


def test_errors_have_no_empty_fields_and_others_have():
    assert json.loads(ErrorMessage(code="busy", message="m", retry_after_ms=5).to_json()) == {
        "type": "error",
        "code": "busy",
        "message": "m",
        "retry_after_ms": 5,
    }
    done = UtteranceDone(id="a", audio_ms=0, first_audio_ms=None, rtf=None, characters=0)
    assert json.loads(done.to_json())["first_audio_ms"] is None


def test_names_are_read_as_far_as_they_can_be():
    assert names_of('{"type":"speak","id":"a","speed":"fast"}') == ("a", None)
    assert names_of('{"type":"utterance.start","id":"a:1","request_id":"r"}') == ("a:1", "r")
    assert names_of('{"type":"text.delta","id":"a","request_id":"r"}') == (None, "r")
    for frame in ('{"type":"speak","id":"a b"}', '{"request_id":7}', "[]", "{", "[" * 100_000):
        assert names_of(frame) == (None, None)


def test_importing_it_pulls_in_no_server_and_no_engine():
    code = (
        "import sys, cosyvoice_stream.server.wire; "
        "print([m for m in ('starlette', 'uvicorn', 'torch', 'onnxruntime', 'av') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_everything_promised_is_exported():
    assert all(hasattr(wire, name) for name in wire.__all__)
