import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming.playout import Listener, Playout, SpokenWords

pytestmark = pytest.mark.unit


def test_counts_generated_and_sent_apart():
    playout = Playout(8000)
    playout.add_generated(800)
    playout.add_generated(800)
    playout.set_sent(800, now=5.0)
    assert (playout.generated, playout.sent) == (1600, 800)
    assert playout.to_ms(playout.sent) == 100.0


def test_nothing_is_played_before_anything_is_sent():
    assert Playout(8000).played(now=99.0) == (0, True)


def test_estimate_runs_with_time_and_stops_at_what_was_sent():
    playout = Playout(8000)
    playout.set_sent(8000, now=10.0)
    assert playout.played(10.5) == (4000, True)
    assert playout.played(12.0) == (8000, True)


def test_estimate_stands_still_while_the_player_has_nothing():
    playout = Playout(8000)
    playout.set_sent(800, now=0.0)  # 100 ms of audio, then 900 ms of silence
    playout.set_sent(8000, now=1.0)
    assert playout.played(1.5) == (800 + 4000, True)


def test_a_report_replaces_the_estimate_and_is_never_more_than_was_sent():
    playout = Playout(8000)
    playout.set_sent(8000, now=0.0)
    playout.report(2000)
    assert playout.played(0.9) == (2000, False)
    playout.report(99_999)
    assert playout.played(0.9) == (8000, False)


def test_sent_never_goes_back():
    playout = Playout(8000)
    playout.set_sent(800, now=0.0)
    playout.set_sent(400, now=0.1)
    assert playout.sent == 800


def test_text_heard_ends_with_the_last_word_that_had_ended():
    text = "Hello big world"
    words = SpokenWords()
    for end_ms, char_end in ((250.0, 5), (450.0, 9), (750.0, 15)):
        words.add(end_ms, char_end)
    playout = Playout(1000)
    playout.set_sent(1000, now=0.0)
    heard = [playout.text_heard(text, words, now) for now in (0.2, 0.25, 0.449, 0.45, 2.0)]
    assert heard == ["", "Hello", "Hello", "Hello big", text]


def test_no_words_no_text():
    assert SpokenWords().heard_chars(1e9) == 0


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), max_size=30))
def test_played_never_exceeds_sent_and_never_goes_back(steps):
    playout = Playout(100)
    now, sent, before = 0.0, 0, 0
    for samples, pause in steps:
        sent += samples
        playout.set_sent(sent, now)
        now += pause
        played, _ = playout.played(now)
        assert before <= played <= sent
        before = played


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 10_000)), max_size=40))
def test_heard_chars_grow_with_time_whatever_order_words_come_in(words):
    spoken = SpokenWords()
    for end_ms, char_end in words:
        spoken.add(end_ms, char_end)
    heard = [spoken.heard_chars(ms) for ms in (0, 1, 100, 1e4, 1e6)]
    assert heard == sorted(heard)
    assert heard[-1] == max((char_end for _, char_end in words), default=0)


def test_a_listener_runs_dry_by_what_the_server_is_late():
    listener = Listener()
    assert listener.next(5.0, 0.0, 0.5) == 0.0  # waiting for the first audio is no underrun
    assert listener.next(0.4, 0.0, 0.5) == 0.0
    assert listener.next(1.0, 0.0, 0.5) == pytest.approx(0.4)
    assert listener.next(0.5, 0.0, 0.5) == 0.0


def test_a_listener_who_waits_for_text_or_takes_nothing_blames_nobody():
    listener = Listener()
    listener.next(0.0, 0.0, 0.5)
    assert listener.next(0.0, 9.0, 0.5) == 0.0
    listener.held(9.0)
    assert listener.next(0.2, 0.0, 0.5) == pytest.approx(0.2)


def test_a_player_that_gathers_first_has_heard_that_much_less():
    playout = Playout(8000, buffer_ms=250)
    playout.set_sent(8000, now=10.0)
    assert playout.played(10.2) == (0, True)
    assert playout.played(10.5) == (2000, True)
    assert playout.played(99.0) == (8000, True)


def test_lead_is_what_was_made_and_not_heard():
    playout = Playout(8000)
    playout.add_generated(8000)
    assert playout.lead_ms(0.0) == 1000.0
    playout.set_sent(8000, now=0.0)
    assert playout.lead_ms(0.25) == 750.0
    playout.report(6000)
    assert playout.is_reported
    assert playout.lead_ms(0.25) == 250.0
