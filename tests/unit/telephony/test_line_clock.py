import random

import pytest

from cosyvoice_stream.telephony.line_clock import MAX_BURST_FRAMES, LineClock

pytestmark = pytest.mark.unit

FRAME_S = 0.02


class Sink:
    """A far end that plays 20 ms at a time as soon as it has the first frame."""

    def __init__(self):
        self.arrivals = []

    def lead_s(self, now):
        return len(self.arrivals) * FRAME_S - (now - self.arrivals[0])

    def dry_s(self):
        """Time with nothing to play between the first and the last frame."""
        dry, play_end = 0.0, self.arrivals[0]
        for at in self.arrivals:
            dry += max(0.0, at - play_end)
            play_end = max(play_end, at) + FRAME_S
        return dry


def run(clock, *, seconds, lead_frames, stall=lambda: 0.0, start=1000.0):
    """Drive a clock as its loop does; each wake-up is late by `stall()` seconds."""
    sink, now, most = Sink(), start, 0.0
    while now < start + seconds:
        count = clock.due(now, lead_frames)
        for _ in range(count):
            clock.add_sent()
            sink.arrivals.append(now)
        most = max(most, sink.lead_s(now))
        assert count <= MAX_BURST_FRAMES
        now = max(clock.next_at(now, lead_frames), now + 1e-4) + stall()
    return sink, most, now


def test_an_undisturbed_line_gets_a_frame_every_20_ms():
    clock = LineClock()
    sink, most, _ = run(clock, seconds=10, lead_frames=3)
    steps = [b - a for a, b in zip(sink.arrivals[3:], sink.arrivals[4:], strict=False)]
    assert steps == pytest.approx([FRAME_S] * len(steps), abs=1e-6)
    assert most == pytest.approx(3 * FRAME_S, abs=1e-6)


@pytest.mark.parametrize("lead_frames", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_stalls_of_10_to_25_ms_neither_drift_nor_run_dry_in_5_minutes(lead_frames, seed):
    draw = random.Random(seed)
    clock = LineClock()

    def stall():
        return draw.choice((0.010, 0.015, 0.025)) if draw.random() < 0.5 else 0.0

    sink, most, end = run(clock, seconds=300, lead_frames=lead_frames, stall=stall)
    elapsed_s = sink.arrivals[-1] - sink.arrivals[0]
    drift_s = len(sink.arrivals) * FRAME_S - elapsed_s - lead_frames * FRAME_S
    assert abs(drift_s) <= 0.020
    assert sink.dry_s() == 0
    assert most <= 0.160
    assert clock.skipped == 0


def test_a_short_lead_survives_longer_stalls_with_slack():
    """With a lead of one frame the far end runs dry, but what was late does not pile up."""
    draw = random.Random(7)
    clock = LineClock()
    sink, most, _ = run(
        clock, seconds=60, lead_frames=1, stall=lambda: draw.choice((0, 0, 0, 0.010, 0.025))
    )
    assert len(sink.arrivals) * FRAME_S == pytest.approx(60, abs=0.05)
    assert most <= 0.160


def test_a_long_stall_is_given_up_instead_of_sent_in_a_burst():
    clock = LineClock()
    stalls = iter([0.0] * 50 + [2.0])
    sink, most, end = run(clock, seconds=10, lead_frames=5, stall=lambda: next(stalls, 0.0))
    # 100 ms of lead were played on and 60 ms of slack were caught up.
    assert clock.skipped * FRAME_S == pytest.approx(2.0 - 0.10 - 0.06, abs=0.021)
    assert most <= 0.160 + 1e-6
    after = [at for at in sink.arrivals if at > end - 5]
    assert max(b - a for a, b in zip(after, after[1:], strict=False)) < 0.021


def test_slots_count_skipped_frames():
    clock = LineClock()
    assert clock.due(0.0, 1) == 1
    assert clock.add_sent() == 0
    clock.due(10.0, 1)
    assert clock.skipped == 500 - 1 - 3
    assert clock.add_sent() == 1 + clock.skipped


def test_the_lead_grows_and_shrinks_with_what_is_asked_for():
    clock = LineClock()
    now = 5.0
    for lead_frames, count in ((3, 2), (3, 1), (3, 0), (5, 2), (5, 0), (3, 0)):
        assert clock.due(now, lead_frames) == count
        for _ in range(count):
            clock.add_sent()
    assert clock.next_at(now, 3) == pytest.approx(now + 3 * FRAME_S)
    assert clock.due(now + 2 * FRAME_S, 3) == 0
    assert clock.due(now + 3 * FRAME_S, 3) == 1


def test_heard_is_bounded_by_what_was_sent():
    clock = LineClock()
    assert clock.heard(3.0) == 0
    for _ in range(clock.due(1.0, 2)):
        clock.add_sent()
    assert clock.heard(1.0) == 0
    assert clock.heard(1.02) == 1
    assert clock.heard(9.0) == 2
    assert clock.heard_at(1) == pytest.approx(1.04)
    assert clock.lead_s(1.01) == pytest.approx(0.03)
    assert clock.lead_s(9.0) == 0


def test_a_cleared_far_end_plays_the_next_frame_at_once():
    clock = LineClock()
    now = 1.0
    while count := clock.due(now, 5):
        for _ in range(count):
            clock.add_sent()
    assert clock.sent == 5
    now = 1.03
    assert clock.heard(now) == 1
    clock.cleared(now)
    assert clock.lead_s(now) == 0
    assert clock.due(now, 3) == MAX_BURST_FRAMES
    clock.add_sent()
    assert clock.heard_at(5) == pytest.approx(now + FRAME_S)


def test_a_frame_of_no_length_is_refused():
    with pytest.raises(ValueError, match="at least a millisecond"):
        LineClock(0)
