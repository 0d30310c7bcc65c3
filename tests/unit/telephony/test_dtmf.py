"""Telephone keys as RTP events: each key once, whatever the network does."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded
from cosyvoice_stream.telephony.dtmf import (
    MAX_WAITING,
    SYMBOLS,
    Key,
    KeyReceiver,
    KeySender,
    ToneEvent,
)
from cosyvoice_stream.telephony.rtp import RtpPacket, add_ticks

pytestmark = pytest.mark.unit

CLOCK_HZ = 8000


def sent(digits: str, start: int = 0, clock_hz: int = CLOCK_HZ) -> list[RtpPacket]:
    """The event packets of these keys."""
    sender = KeySender(clock_hz)
    sender.press(digits)
    packets, timestamp = [], start
    for sequence in itertools.count():
        packet = sender.next(timestamp)
        if packet is not None:
            packets.append(
                RtpPacket(
                    101, sequence & 0xFFFF, packet.timestamp, 1, packet.payload, packet.marker
                )
            )
        timestamp = add_ticks(timestamp, clock_hz // 50)
        if not sender.busy:
            return packets
    raise AssertionError


def received(packets: list[RtpPacket]) -> str:
    """What a receiver makes of packets 20 ms apart, and of the silence after them."""
    receiver, keys = KeyReceiver(CLOCK_HZ), []
    for place, packet in enumerate(packets):
        keys += receiver.push(packet, place * 0.02)
    keys += receiver.poll(len(packets) * 0.02 + 1)
    return "".join(key.symbol for key in keys)


@given(st.builds(ToneEvent, st.integers(0, 255), st.integers(0, 0xFFFF), st.booleans()))
def test_what_is_written_reads_as_before(event: ToneEvent) -> None:
    assert ToneEvent.parse(event.serialize()) == event


def test_payload_lies_as_rfc_4733_section_2_3_says() -> None:
    assert ToneEvent(5, 800, end=True).serialize() == bytes([5, 0x8A, 0x03, 0x20])


@pytest.mark.parametrize("data", [b"", b"\x05\x0a\x03", b"\x05\x0a\x03\x20\x00"])
def test_any_other_length_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage, match="has 4 bytes"):
        ToneEvent.parse(data)


def test_a_key_has_one_timestamp_growing_duration_and_three_ends() -> None:
    packets = sent("7", start=4000)
    events = [ToneEvent.parse(packet.payload) for packet in packets]
    assert {packet.timestamp for packet in packets} == {4000}
    assert [packet.marker for packet in packets] == [True] + [False] * 9
    assert [event.duration for event in events] == [*range(160, 1281, 160), 1280, 1280]
    assert [event.end for event in events] == [False] * 7 + [True] * 3
    assert {event.code for event in events} == {7}


def test_keys_have_a_pause_between_them() -> None:
    sender = KeySender(CLOCK_HZ, key_ms=40, pause_ms=60)
    sender.press("12")
    line = ["k" if sender.next(160 * place) else "." for place in range(12)]
    assert "".join(line) == "kkkk...kkkk."


def test_every_key_is_received_once() -> None:
    assert received(sent(SYMBOLS)) == SYMBOLS


def test_a_key_tells_how_long_it_was_pressed() -> None:
    receiver = KeyReceiver(CLOCK_HZ)
    keys = [key for packet in sent("5") for key in receiver.push(packet, 0.0)]
    assert keys == [Key("5", 160.0)]
    assert "5" not in repr(keys)


@given(st.text(SYMBOLS, min_size=1, max_size=5), st.integers(0, 2**32 - 1), st.data())
def test_repeated_and_neighbouring_packets_swapped_change_nothing(
    digits: str, start: int, data: st.DataObject
) -> None:
    packets = [copy for packet in sent(digits, start) for copy in [packet, packet]]
    swaps = data.draw(st.lists(st.integers(0, len(packets) - 2), max_size=20))
    for place in swaps:
        if packets[place].timestamp == packets[place + 1].timestamp:
            packets[place : place + 2] = reversed(packets[place : place + 2])
    assert received(packets) == digits


def test_half_of_the_packets_lost_at_random_lose_no_key() -> None:
    chance = random.Random(7)
    packets = sent("1234567890")
    kept = [packet for packet in packets if chance.random() > 0.5]
    assert received(kept) == "1234567890"


def test_a_key_whose_ends_are_all_lost_counts_when_the_next_begins_or_time_passes() -> None:
    packets = [p for p in sent("12") if not ToneEvent.parse(p.payload).end]
    receiver, heard = KeyReceiver(CLOCK_HZ), ""
    for place, packet in enumerate(packets):
        heard += "".join(key.symbol for key in receiver.push(packet, place * 0.02))
    assert heard == "1"
    last = (len(packets) - 1) * 0.02
    assert receiver.poll(last + 0.1) == []
    assert [key.symbol for key in receiver.poll(last + 0.25)] == ["2"]
    assert receiver.poll(last + 9) == []


def test_a_straggler_of_a_counted_key_is_ignored() -> None:
    packets = sent("12")
    assert received([*packets, packets[3]]) == "12"


def test_a_key_longer_than_one_event_is_one_key() -> None:
    receiver = KeyReceiver(CLOCK_HZ)
    first = RtpPacket(101, 1, 0, 1, ToneEvent(3, 0xFFFF).serialize(), marker=True)
    second = RtpPacket(101, 2, 0xFFFF, 1, ToneEvent(3, 8000, end=True).serialize())
    assert receiver.push(first, 0.0) == []
    assert receiver.push(second, 0.02) == [Key("3", (0xFFFF + 8000) / 8)]


def test_events_that_are_no_keys_are_passed_over() -> None:
    flash = RtpPacket(101, 1, 0, 1, ToneEvent(16, 800, end=True).serialize(), marker=True)
    assert received([flash]) == ""


def test_only_keys_can_be_pressed_and_not_endlessly_many() -> None:
    sender = KeySender(CLOCK_HZ)
    with pytest.raises(InvalidMessage, match="0 to 9"):
        sender.press("12x")
    sender.press("a" * MAX_WAITING)
    with pytest.raises(LimitExceeded, match="at most 64 keys"):
        sender.press("1")


def test_a_key_must_fit_into_one_event() -> None:
    with pytest.raises(ValueError, match="longer than one event"):
        KeySender(48_000, key_ms=2000)
