"""Session descriptions: text ↔ fields, and what is refused."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.sdp import (
    MAX_FORMATS,
    MAX_MEDIA,
    Description,
    Direction,
    Format,
    Media,
    direction,
)

pytestmark = pytest.mark.unit

BARESIP = """v=0\r
o=- 3842110222 2 IN IP4 192.0.2.7\r
s=-\r
c=IN IP4 192.0.2.7\r
t=0 0\r
a=tool:baresip 1.0.0\r
m=audio 31244 RTP/AVP 96 9 0 8 101\r
a=rtpmap:96 opus/48000/2\r
a=fmtp:96 stereo=1;sprop-stereo=1\r
a=rtpmap:9 G722/8000\r
a=rtpmap:0 PCMU/8000\r
a=rtpmap:8 PCMA/8000\r
a=rtpmap:101 telephone-event/8000\r
a=fmtp:101 0-15\r
a=rtcp:31245\r
a=sendrecv\r
a=ptime:20\r
m=video 0 RTP/AVP 97\r
"""

TOKEN = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=12)
HOSTS = st.sampled_from(["192.0.2.1", "198.51.100.7", "2001:db8::1"])
FORMATS = st.builds(
    Format,
    payload_type=st.integers(96, 127),
    name=TOKEN,
    clock_hz=st.integers(1, 192_000),
    channels=st.integers(1, 8),
    parameters=st.sampled_from(["", "0-16", "useinbandfec=1;usedtx=0"]),
)
DURATIONS = st.none() | st.integers(1, 200)
LINES = st.builds(
    Media,
    kind=st.sampled_from(["audio", "video"]),
    port=st.integers(1, 65_535),
    formats=st.lists(FORMATS, min_size=1, max_size=5, unique_by=lambda f: f.payload_type).map(
        tuple
    ),
    host=HOSTS,
    direction=st.sampled_from(Direction),
    ptime_ms=DURATIONS,
    maxptime_ms=DURATIONS,
    rtcp_mux=st.booleans(),
    rtcp_port=st.none() | st.integers(1, 65_535),
)
DESCRIPTIONS = st.builds(
    Description,
    host=HOSTS,
    media=st.lists(LINES, max_size=3).map(tuple),
    session_id=st.integers(0, 2**63 - 1),
    version=st.integers(0, 2**63 - 1),
)


def test_an_offer_of_baresip_is_read() -> None:
    read = Description.parse(BARESIP)
    assert (read.host, read.session_id, read.version) == ("192.0.2.7", 3842110222, 2)
    audio = read.audio
    assert audio is not None
    assert audio.formats == (
        Format(96, "opus", 48_000, 2, "stereo=1;sprop-stereo=1"),
        Format(9, "G722", 8000),
        Format(0, "PCMU", 8000),
        Format(8, "PCMA", 8000),
        Format(101, "telephone-event", 8000, 1, "0-15"),
    )
    assert (audio.port, audio.host, audio.rtcp_port) == (31_244, "192.0.2.7", 31_245)
    assert (audio.ptime_ms, audio.direction) == (20, Direction.SENDRECV)
    assert [(line.kind, line.port) for line in read.media] == [("audio", 31_244), ("video", 0)]


@given(DESCRIPTIONS)
def test_what_is_written_reads_as_before(description: Description) -> None:
    assert Description.parse(description.serialize()) == description


@given(st.text(max_size=300) | st.text("vmoac=: /019\r\n", max_size=300).map("v=0\r\n".__add__))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidMessage):
        Description.parse(text)


@given(st.integers(0, len(BARESIP)))
def test_a_description_cut_anywhere_is_read_or_refused(length: int) -> None:
    try:
        read = Description.parse(BARESIP[:length])
    except InvalidMessage:
        return
    assert len(read.media) <= 2


def test_bare_line_feeds_static_types_and_session_wide_attributes_are_understood() -> None:
    read = Description.parse(
        "v=0\no=x 1 1 IN IP4 192.0.2.1\ns=call\nc=IN IP4 192.0.2.1/127\nt=0 0\n"
        "a=sendonly\na=ptime:30\nm=audio 4000/2 RTP/AVP 0 8 9 13 110\n"
    )
    audio = read.audio
    assert audio is not None
    assert [found.name for found in audio.formats] == ["PCMU", "PCMA", "G722", "CN", ""]
    assert (audio.direction, audio.ptime_ms, audio.port) == (Direction.SENDONLY, 30, 4000)
    assert audio.host == "192.0.2.1"


@pytest.mark.parametrize(
    ("way", "host", "held"),
    [
        ("sendrecv", "192.0.2.1", False),
        ("recvonly", "192.0.2.1", False),
        ("sendonly", "192.0.2.1", True),
        ("inactive", "192.0.2.1", True),
        ("sendrecv", "0.0.0.0", True),
    ],
)
def test_hold_is_a_direction_or_the_old_address_of_zeros(way: str, host: str, held: bool) -> None:
    text = f"v=0\nc=IN IP4 {host}\nm=audio 4000 RTP/AVP 0\na={way}\n"
    audio = Description.parse(text).audio
    assert audio is not None
    assert audio.on_hold is held


def test_only_plain_rtp_that_is_switched_on_counts_as_audio() -> None:
    for line in ("audio 0 RTP/AVP 0", "audio 9 RTP/SAVP 0", "audio 9 UDP/TLS/RTP/SAVPF 0"):
        assert Description.parse(f"v=0\nc=IN IP4 192.0.2.1\nm={line}\n").audio is None


def test_formats_that_are_not_rtp_are_kept_as_they_stand() -> None:
    media = Description.parse("v=0\nm=image 9 udptl t38\n").media
    assert (media[0].other_formats, media[0].formats) == (("t38",), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with v=0"),
        ("o=- 1 1 IN IP4 192.0.2.1\n", "begins with v=0"),
        ("v=0\nnonsense\n", "form x=value"),
        ("v=0\nm=audio 4000 RTP/AVP\n", "a kind, a port, a protocol and formats"),
        ("v=0\nm=audio 70000 RTP/AVP 0\n", "outside 0 to 65535"),
        ("v=0\nm=audio -1 RTP/AVP 0\n", "outside 0 to 65535"),
        ("v=0\nm=audio ४ RTP/AVP 0\n", "outside 0 to 65535"),
        ("v=0\nm=audio 4000 RTP/AVP 128\n", "outside 0 to 127"),
        ("v=0\nm=audio 4000 RTP/AVP 96\na=rtpmap:96 X/999999999\n", "outside 0 to 1000000"),
        ("v=0\nc=IN IP4\nm=audio 4000 RTP/AVP 0\n", "form IN IP4 address"),
        ("v=0\ns=" + "x" * 2000, "at most 1024 characters"),
        ("v=0\n" + "a=x\n" * 5000, "at most 16384 characters"),
        ("v=0\n" + "m=audio 1 RTP/AVP 0\n" * (MAX_MEDIA + 1), "at most 16 media lines"),
        ("v=0\nm=audio 1 RTP/AVP" + " 0" * (MAX_FORMATS + 1), "at most 64 formats"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        Description.parse(text)


@pytest.mark.parametrize("way", Direction)
def test_directions_turn_round(way: Direction) -> None:
    assert way.reversed.reversed is way
    assert (way.reversed.sends, way.reversed.receives) == (way.receives, way.sends)
    assert direction(sends=way.sends, receives=way.receives) is way
