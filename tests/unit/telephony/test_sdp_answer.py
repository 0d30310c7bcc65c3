"""Offer and answer: codec, telephone events, packet length, hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import ConfigError, UnsupportedFormat
from cosyvoice_stream.telephony.sdp import Description, Direction
from cosyvoice_stream.telephony.sdp_answer import (
    CODECS,
    PTIMES_MS,
    Local,
    check_codecs,
    make_answer,
    make_offer,
    read_answer,
)

pytestmark = pytest.mark.unit

LOCAL = Local("192.0.2.9", 20_000)


def offer(formats: str, *attributes: str, host: str = "192.0.2.7") -> Description:
    lines = ["v=0", "o=- 1 1 IN IP4 192.0.2.7", "s=-", f"c=IN IP4 {host}", "t=0 0"]
    lines += [f"m=audio 4000 RTP/AVP {formats}", *(f"a={item}" for item in attributes)]
    return Description.parse("\r\n".join(lines))


def test_the_first_codec_of_the_offer_that_is_ours_is_taken() -> None:
    answer, agreed = make_answer(offer("3 8 0 9"), LOCAL)
    assert (agreed.codec.name, agreed.payload_type) == ("pcma", 8)
    assert (agreed.host, agreed.port, agreed.rtcp_port) == ("192.0.2.7", 4000, 4001)
    assert answer.serialize().splitlines() == [
        "v=0",
        "o=- 0 0 IN IP4 192.0.2.9",
        "s=-",
        "c=IN IP4 192.0.2.9",
        "t=0 0",
        "m=audio 20000 RTP/AVP 8",
        "a=rtpmap:8 PCMA/8000",
        "a=ptime:20",
        "a=sendrecv",
    ]


def test_dynamic_payload_types_are_those_of_the_offer() -> None:
    asked = offer("121 0 100", "rtpmap:121 OPUS/48000/2", "rtpmap:100 telephone-event/48000")
    answer, agreed = make_answer(asked, LOCAL)
    assert (agreed.codec.name, agreed.payload_type) == ("opus", 121)
    assert (agreed.dtmf_payload_type, agreed.dtmf_clock_hz) == (100, 48_000)
    text = answer.serialize()
    assert "m=audio 20000 RTP/AVP 121 100\r\n" in text
    assert "a=rtpmap:121 opus/48000/2\r\na=fmtp:121 useinbandfec=1;usedtx=0" in text
    assert "a=rtpmap:100 telephone-event/48000\r\na=fmtp:100 0-16\r\n" in text


def test_telephone_events_have_the_clock_of_the_codec_if_there_is_a_choice() -> None:
    events = ("rtpmap:100 telephone-event/48000", "rtpmap:101 telephone-event/8000")
    _, agreed = make_answer(offer("0 100 101", *events), LOCAL)
    assert (agreed.dtmf_payload_type, agreed.dtmf_clock_hz) == (101, 8000)
    _, agreed = make_answer(offer("0 100", *events), LOCAL)
    assert (agreed.dtmf_payload_type, agreed.dtmf_clock_hz) == (100, 48_000)


@pytest.mark.parametrize(
    ("attributes", "ptime_ms"),
    [
        ((), 20),
        (("ptime:30",), 30),
        (("ptime:20.0",), 20),
        (("ptime:50",), 40),
        (("ptime:5",), 10),
        (("ptime:200",), 60),
        (("ptime:60", "maxptime:30"), 30),
        (("ptime:x",), 20),
    ],
)
def test_packets_are_as_long_as_the_offer_asks(attributes: tuple[str, ...], ptime_ms: int) -> None:
    assert make_answer(offer("0", *attributes), LOCAL)[1].ptime_ms == ptime_ms


def test_packets_of_g722_have_multiples_of_20_ms() -> None:
    assert make_answer(offer("9", "ptime:10"), LOCAL)[1].ptime_ms == 20
    assert make_answer(offer("9", "ptime:30"), LOCAL)[1].ptime_ms == 20


def test_opus_has_no_packets_of_30_ms_and_wide_samples_fit_into_ethernet() -> None:
    opus = offer("96", "rtpmap:96 opus/48000/2", "ptime:30")
    assert make_answer(opus, LOCAL)[1].ptime_ms == 20
    wide = offer("96", "rtpmap:96 L16/16000", "ptime:60")
    assert make_answer(wide, LOCAL)[1].ptime_ms == 40


@pytest.mark.parametrize(
    ("attributes", "host", "answered", "held"),
    [
        ((), "192.0.2.7", "sendrecv", False),
        (("sendonly",), "192.0.2.7", "recvonly", True),
        (("recvonly",), "192.0.2.7", "sendonly", False),
        (("inactive",), "192.0.2.7", "inactive", True),
        ((), "0.0.0.0", "recvonly", True),
    ],
)
def test_hold_is_answered_with_its_opposite(
    attributes: tuple[str, ...], host: str, answered: str, held: bool
) -> None:
    answer, agreed = make_answer(offer("0", *attributes, host=host), LOCAL)
    assert f"a={answered}\r\n" in answer.serialize()
    assert (agreed.direction.value, agreed.held) == (answered, held)


def test_we_can_hold_as_well() -> None:
    answer, _ = make_answer(offer("0"), replace(LOCAL, direction=Direction.SENDONLY))
    assert "a=sendonly\r\n" in answer.serialize()


@pytest.mark.parametrize("host", ["0.0.0.0", "239.1.2.3", "ff02::1", "example.org", "::"])
def test_packets_are_sent_only_to_one_address(host: str) -> None:
    assert make_answer(offer("0", host=host), LOCAL)[1].host == ""


def test_every_media_line_is_answered_the_others_with_port_0() -> None:
    text = (
        "v=0\nc=IN IP4 192.0.2.7\nm=video 6000 RTP/AVP 97 98\nm=audio 4000 RTP/AVP 0\n"
        "m=image 7000 udptl t38\nm=audio 5000 RTP/AVP 8\n"
    )
    answer, agreed = make_answer(Description.parse(text), LOCAL)
    lines = [line for line in answer.serialize().splitlines() if line.startswith("m=")]
    assert lines == [
        "m=video 0 RTP/AVP 97",
        "m=audio 20000 RTP/AVP 0",
        "m=image 0 udptl t38",
        "m=audio 0 RTP/AVP 8",
    ]
    assert agreed.port == 4000


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (offer("3 18"), "none of our codecs"),
        (offer("96", "rtpmap:96 L16/16000/2"), "none of our codecs"),
        (Description.parse("v=0\nm=video 1 RTP/AVP 97\n"), "no plain RTP audio"),
        (Description.parse("v=0\nm=audio 1 RTP/SAVP 0\n"), "no plain RTP audio"),
    ],
    ids=["other codecs", "stereo", "no audio", "encrypted only"],
)
def test_a_call_that_cannot_be_is_refused(description: Description, message: str) -> None:
    with pytest.raises(UnsupportedFormat, match=message):
        make_answer(description, LOCAL)


@given(
    st.lists(st.sampled_from(sorted(CODECS)), min_size=1, unique=True),
    st.lists(st.sampled_from(sorted(CODECS)), min_size=1, unique=True),
    st.sampled_from(Direction),
    st.sampled_from(PTIMES_MS),
)
def test_both_ends_agree(theirs: list[str], ours: list[str], way: Direction, ptime_ms: int) -> None:
    caller = replace(LOCAL, host="192.0.2.7", codecs=tuple(theirs), direction=way)
    caller = replace(caller, ptime_ms=ptime_ms)
    made = Description.parse(make_offer(caller).serialize())
    callee = replace(LOCAL, codecs=tuple(ours))
    if not set(theirs) & set(ours):
        with pytest.raises(UnsupportedFormat):
            make_answer(made, callee)
        return
    answer, called = make_answer(made, callee)
    calling = read_answer(Description.parse(answer.serialize()), caller)
    assert called.codec == calling.codec
    assert called.codec.name == next(name for name in theirs if name in ours)
    for field in ("payload_type", "dtmf_payload_type", "dtmf_clock_hz", "ptime_ms"):
        assert getattr(called, field) == getattr(calling, field)
    assert called.dtmf_clock_hz == called.codec.clock_hz
    assert called.direction is calling.direction.reversed
    assert (called.host, calling.host) == ("192.0.2.7", "192.0.2.9")


@pytest.mark.parametrize("text", ["m=audio 0 RTP/AVP 0", "m=audio 9 RTP/AVP 3"])
def test_an_answer_that_refuses_or_invents_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedFormat, match="no audio that was offered"):
        read_answer(Description.parse(f"v=0\nc=IN IP4 192.0.2.7\n{text}\n"), LOCAL)


def test_codec_names_are_checked_with_a_cure() -> None:
    assert check_codecs([" PCMA", "opus", "pcma"]) == ("pcma", "opus")
    with pytest.raises(ConfigError, match="'gsm' is not available") as wrong:
        check_codecs(["gsm"])
    assert wrong.value.how_to_fix is not None
    assert "g722" in wrong.value.how_to_fix
    with pytest.raises(ConfigError, match="no codec is named"):
        check_codecs([""])
