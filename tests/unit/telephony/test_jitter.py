"""The jitter buffer: what comes out, in order and in time, for what the network did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.telephony.jitter import MAX_HELD, Frame, JitterBuffer
from cosyvoice_stream.telephony.rtp import RtpPacket, add_ticks

pytestmark = pytest.mark.unit

CLOCK_HZ = 8000
STEP = 160
START = 0xFFFF_FF00
"""The timestamps wrap around within the first packets."""


def packet(number: int, *, marker: bool = False, start: int = START) -> RtpPacket:
    """The packet of one 20 ms step; its payload says which."""
    payload = bytes([number & 0xFF]) * STEP
    return RtpPacket(0, number & 0xFFFF, add_ticks(start, number * STEP), 1, payload, marker)


def buffer(**options: float) -> JitterBuffer:
    return JitterBuffer(CLOCK_HZ, len, **options)


def drawn(frames: list[Frame]) -> str:
    """Frames as digits, gaps as dashes."""
    return "".join("-" if frame.payload is None else str(frame.payload[0] % 10) for frame in frames)


def played(arrivals: list[tuple[float, RtpPacket]], until: float, **options: float) -> str:
    """Push the packets at their times; look every 20 ms until the end."""
    jitter, out, waiting = buffer(**options), [], sorted(arrivals, key=lambda item: item[0])
    for look in range(round(until / 0.02) + 1):
        now = look * 0.02 + 1e-6
        while waiting and waiting[0][0] <= now:
            arrived, found = waiting.pop(0)
            jitter.push(found, arrived)
        out += jitter.due(now)
    return drawn(out)


def test_an_even_stream_comes_out_whole_and_40_ms_later() -> None:
    jitter = buffer()
    jitter.push(packet(0), 1.0)
    assert jitter.next_due == pytest.approx(1.04)
    assert jitter.due(1.039) == []
    assert jitter.due(1.0401) == [Frame(bytes(STEP), STEP)]


def test_overtaken_packets_come_in_order() -> None:
    arrivals = [(0.0, packet(0)), (0.04, packet(2)), (0.05, packet(1)), (0.06, packet(3))]
    assert played(arrivals, 0.1) == "0123"


def test_the_first_packet_may_be_overtaken_as_well() -> None:
    assert played([(0.02, packet(1)), (0.025, packet(0))], 0.06) == "01"


def test_a_lost_packet_is_a_gap_of_its_length() -> None:
    jitter = buffer()
    for number in (0, 2):
        jitter.push(packet(number), number * 0.02)
    frames = jitter.due(0.0801)
    assert drawn(frames) == "0-2"
    assert [frame.ticks for frame in frames] == [STEP] * 3
    assert jitter.counts.gaps == 1


def test_a_duplicate_is_played_once() -> None:
    jitter = buffer()
    for _ in range(3):
        jitter.push(packet(0), 0.0)
    assert drawn(jitter.due(0.0401)) == "0"
    assert jitter.counts.duplicate == 2


def test_what_comes_after_its_time_is_dropped_and_lengthens_the_delay() -> None:
    jitter = buffer()
    for number in (0, 1, 3):
        jitter.push(packet(number), number * 0.02)
    assert drawn(jitter.due(0.101)) == "01-3"
    assert jitter.delay_ms == pytest.approx(40)
    jitter.push(packet(2), 0.12)
    assert jitter.counts.late == 1
    assert jitter.delay_ms == pytest.approx(80)


def test_the_delay_stays_within_its_bounds() -> None:
    jitter = buffer(least_ms=20, most_ms=100)
    assert jitter.delay_ms == 20
    for number in range(20):
        jitter.push(packet(number), number * 0.02 + (0.5 if number == 9 else 0))
    assert jitter.delay_ms == 100


def test_silence_of_the_sender_is_filled_in_real_time() -> None:
    arrivals = [(0.0, packet(0)), (0.2, packet(10, marker=True))]
    assert played(arrivals, 0.26) == "0---------0-"


def test_a_sender_that_stops_leaves_a_stream_of_gaps() -> None:
    assert played([(0.0, packet(0))], 1.04) == "0" + "-" * 50


def test_a_clock_that_stood_still_in_a_silence_begins_anew_at_the_marker() -> None:
    arrivals = [(0.0, packet(0)), (0.5, packet(1, marker=True)), (0.52, packet(2))]
    assert played(arrivals, 0.57).replace("-", "") == "012"


@pytest.mark.parametrize("start", [5, 0x4000_0000, 0xC000_0000])
def test_timestamps_that_begin_anew_are_followed(start: int) -> None:
    arrivals = [(number * 0.02, packet(number)) for number in range(5)]
    arrivals += [(0.1 + number * 0.02, packet(number, start=start)) for number in range(20)]
    heard = played(arrivals, 0.53)
    assert heard.replace("-", "").endswith("567890123456789")


def test_a_way_that_became_longer_is_followed() -> None:
    arrivals = [(number * 0.02, packet(number)) for number in range(10)]
    arrivals += [(number * 0.02 + 0.7, packet(number)) for number in range(10, 30)]
    heard = played(arrivals, 1.33).replace("-", "")
    assert heard.startswith("0123456789")
    assert heard.endswith("567890123456789")


def test_a_long_time_without_a_look_does_not_fill_without_end() -> None:
    jitter = buffer()
    jitter.push(packet(0), 0.0)
    frames = jitter.due(3600.0)
    assert 40 <= len(frames) <= 52


def test_a_flood_is_bounded() -> None:
    jitter = buffer()
    for number in range(MAX_HELD + 50):
        jitter.push(RtpPacket(0, number, number, 1, b"x" * STEP), 0.0)
    assert jitter.counts.overflow == 50


def test_payloads_without_length_are_passed_over() -> None:
    jitter = buffer()
    jitter.push(RtpPacket(0, 1, 0, 1, b""), 0.0)
    assert jitter.next_due is None


def test_packets_of_another_length_are_taken_as_they_are() -> None:
    jitter = buffer()
    for number in range(3):
        jitter.push(RtpPacket(0, number, number * 240, 1, b"x" * 240), number * 0.03)
    assert [frame.ticks for frame in jitter.due(0.11)] == [240, 240, 240]


def test_a_reset_forgets_the_source() -> None:
    jitter = buffer()
    jitter.push(packet(0), 0.0)
    jitter.reset()
    assert (jitter.next_due, jitter.due(9.0)) == (None, [])


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 0.06), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 2**32 - 1),
)
def test_every_tick_comes_out_once_and_in_order(
    fates: list[tuple[bool, float, bool]], start: int
) -> None:
    """Whatever is lost, late by up to 60 ms, or doubled."""
    arrivals = []
    for number, (lost, delay_s, doubled) in enumerate(fates):
        if not lost:
            arrivals.append((number * 0.02 + delay_s, number))
            arrivals += [(number * 0.02 + delay_s + 0.01, number)] if doubled else []
    jitter, frames = buffer(), list[Frame]()
    for now, number in sorted(arrivals):
        frames += jitter.due(now)
        jitter.push(packet(number, start=start), now)
    frames += jitter.due(len(fates) * 0.02 + 0.3)
    if not arrivals:
        return
    numbers = [frame.payload[0] for frame in frames if frame.payload is not None]
    assert numbers == sorted(set(numbers))
    assert all(frame.ticks == STEP for frame in frames)
    places = [place for place, frame in enumerate(frames) if frame.payload is not None]
    assert [number - numbers[0] for number in numbers] == [place - places[0] for place in places]
    unique = len({number for _, number in arrivals})
    assert len(numbers) + jitter.counts.late >= unique
