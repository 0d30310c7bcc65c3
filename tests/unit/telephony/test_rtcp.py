"""Reports: their bytes, and what they count."""

from __future__ import annotations

import struct

import pytest

from cosyvoice_stream.telephony.rtcp import Reception, goodbye, ntp_time, sender_report
from cosyvoice_stream.telephony.rtp import RtpPacket, is_rtcp

pytestmark = pytest.mark.unit


def packet(sequence: int, ticks: int) -> RtpPacket:
    return RtpPacket(0, sequence & 0xFFFF, ticks & 0xFFFF_FFFF, 9, b"x")


def parts(data: bytes) -> list[tuple[int, int, bytes]]:
    """Type, count and body of each packet of a compound."""
    found = []
    while data:
        first, kind, words = struct.unpack_from("!BBH", data)
        assert first >> 6 == 2
        found.append((kind, first & 31, data[4 : 4 + 4 * words]))
        data = data[4 + 4 * words :]
    return found


def test_a_sender_report_says_what_was_sent_and_how_the_other_end_arrives() -> None:
    reception = Reception(9, 8000)
    for number in (0, 1, 3):
        reception.add(packet(number, number * 160), number * 0.02)
    data = sender_report(
        7,
        unix_s=0.5,
        timestamp=1600,
        packets=10,
        payload_bytes=1600,
        cname="name",
        block=reception.report(),
    )
    assert is_rtcp(data)
    (kind, count, body), (described, _, name) = parts(data)
    assert (kind, count, described) == (200, 1, 202)
    assert struct.unpack_from("!IIIIII", body) == (7, 2_208_988_800, 1 << 31, 1600, 10, 1600)
    assert struct.unpack_from("!II", body, 24) == (9, 64 << 24 | 1)
    assert struct.unpack_from("!I", body, 32) == (3,)
    assert name[:10] == struct.pack("!IBB", 7, 1, 4) + b"name"
    assert len(name) % 4 == 0


def test_without_anything_heard_there_is_no_block() -> None:
    data = sender_report(
        7, unix_s=0, timestamp=0, packets=0, payload_bytes=0, cname="n", block=None
    )
    assert parts(data)[0][1] == 0


def test_a_goodbye_names_our_stream() -> None:
    assert [(kind, body[:4]) for kind, _, body in parts(goodbye(7, "n"))] == [
        (201, struct.pack("!I", 7)),
        (202, struct.pack("!I", 7)),
        (203, struct.pack("!I", 7)),
    ]


def test_losses_are_counted_around_the_end_of_the_sequence_numbers() -> None:
    reception = Reception(9, 8000)
    for number in (65_534, 65_535, 65_537, 65_538):
        reception.add(packet(number, 0), 0.0)
    assert (reception.received, reception.expected, reception.lost) == (4, 5, 1)
    assert reception.report().fraction_lost == 51
    assert reception.report().fraction_lost == 0
    assert reception.report().highest_sequence == 65_538


def test_jitter_is_that_of_the_standard() -> None:
    even, rough = Reception(9, 8000), Reception(9, 8000)
    for number in range(200):
        even.add(packet(number, number * 160), number * 0.02)
        rough.add(packet(number, number * 160), number * 0.02 + 0.01 * (number % 2))
    assert even.jitter_ms < 0.2
    assert rough.jitter_ms == pytest.approx(10, abs=0.5)


def test_the_clock_of_reports_begins_in_1900() -> None:
    assert ntp_time(0) == 2_208_988_800 << 32
