"""RTP packets: bytes ↔ fields, every length, counters that wrap around."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.rtp import (
    MAX_PACKET_BYTES,
    RtpPacket,
    Unwrapper,
    add_sequence,
    add_ticks,
    is_rtcp,
    sequence_distance,
    timestamp_distance,
)

pytestmark = pytest.mark.unit

WORD = st.integers(0, 0xFFFF_FFFF)
PACKETS = st.builds(
    RtpPacket,
    payload_type=st.integers(0, 127),
    sequence=st.integers(0, 0xFFFF),
    timestamp=WORD,
    ssrc=WORD,
    payload=st.binary(max_size=400),
    marker=st.booleans(),
    csrcs=st.lists(WORD, max_size=15).map(tuple),
    extension=st.none()
    | st.tuples(
        st.integers(0, 0xFFFF), st.binary(max_size=60).map(lambda words: words[: len(words) & ~3])
    ),
    padding_bytes=st.integers(0, 255),
)
PLAIN = RtpPacket(0, 7, 160, 0x01020304, b"\xff" * 4, marker=True)
PLAIN_BYTES = bytes.fromhex("80800007000000a001020304ffffffff")


def test_fields_lie_where_rfc_3550_says() -> None:
    assert PLAIN.serialize() == PLAIN_BYTES
    assert RtpPacket.parse(PLAIN_BYTES) == PLAIN


@given(PACKETS)
def test_what_is_written_reads_as_before(packet: RtpPacket) -> None:
    assert RtpPacket.parse(packet.serialize()) == packet


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        packet = RtpPacket.parse(data)
    except InvalidMessage:
        return
    assert len(packet.payload) < len(data)


@given(PACKETS, st.data())
def test_a_cut_packet_is_never_read_beyond_its_end(packet: RtpPacket, data: st.DataObject) -> None:
    whole = packet.serialize()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        read = RtpPacket.parse(cut)
    except InvalidMessage:
        return
    assert len(read.payload) <= len(cut) - 12


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "an RTP packet has at least 12 bytes"),
        (PLAIN_BYTES[:11], "an RTP packet has at least 12 bytes"),
        (PLAIN_BYTES + bytes(MAX_PACKET_BYTES), "an RTP packet has at most 8192 bytes"),
        (b"\x40" + PLAIN_BYTES[1:], "the RTP version is not 2"),
        (b"\x8f" + PLAIN_BYTES[1:], "the RTP packet ends among its contributors"),
        (b"\x90" + PLAIN_BYTES[1:14], "the RTP packet ends in its header extension"),
        (b"\x90" + PLAIN_BYTES[1:], "the RTP packet ends in its header extension"),
        (
            b"\xa0" + PLAIN_BYTES[1:],
            "the padding of the RTP packet is longer than its payload",
        ),
        (
            b"\xa0" + PLAIN_BYTES[1:12],
            "the padding of the RTP packet is longer than its payload",
        ),
        (
            b"\xa0" + PLAIN_BYTES[1:15] + b"\x00",
            "the padding of the RTP packet is longer than its payload",
        ),
    ],
    ids=[
        "empty",
        "11 bytes",
        "oversized",
        "version 1",
        "15 contributors",
        "extension header cut",
        "extension cut",
        "padding too long",
        "padding without a byte",
        "padding of zero",
    ],
)
def test_a_wrong_packet_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        RtpPacket.parse(data)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "packet",
    [
        replace(PLAIN, payload_type=128),
        replace(PLAIN, sequence=0x1_0000),
        replace(PLAIN, timestamp=-1),
        replace(PLAIN, ssrc=1 << 32),
        replace(PLAIN, csrcs=(1,) * 16),
        replace(PLAIN, csrcs=(-1,)),
        replace(PLAIN, extension=(1, b"abc")),
        replace(PLAIN, padding_bytes=256),
    ],
    ids=lambda packet: "",
)
def test_fields_that_do_not_fit_are_not_written(packet: RtpPacket) -> None:
    with pytest.raises(ValueError, match=r"bits|contributors|words"):
        packet.serialize()


def test_counters_wrap_around() -> None:
    assert add_sequence(0xFFFF) == 0
    assert add_ticks(0xFFFF_FFF0, 0x20) == 0x10
    assert sequence_distance(2, 0xFFFE) == 4
    assert sequence_distance(0xFFFE, 2) == -4
    assert timestamp_distance(5, 0xFFFF_FFFB) == 10
    assert timestamp_distance(0, 0x8000_0000) == -0x8000_0000


@given(st.lists(st.integers(-1000, 1000), max_size=300), st.integers(0, 0xFFFF))
def test_unwrapping_gives_the_true_count(steps: list[int], start: int) -> None:
    unwrapper, true = Unwrapper(16), start
    assert unwrapper.unwrap(start) == start
    for step in steps:
        true += step
        assert unwrapper.unwrap(true & 0xFFFF) == true


def test_rtcp_on_a_shared_port_is_told_apart() -> None:
    assert is_rtcp(b"\x80\xc8")
    assert not is_rtcp(PLAIN_BYTES)
    assert not is_rtcp(b"\x80")
