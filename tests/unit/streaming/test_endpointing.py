from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming.endpointing import Endpointer, Segment, find_segments
from cosyvoice_stream.streaming.vad import VoiceActivity
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

RATE = 8_000
FRAME = 160


def loud(frame: bytes, rate: int) -> bool:
    return any(frame)


def audio(pattern: str) -> Samples:
    values = [np.full(FRAME, 0.5 if each == "S" else 0.0, np.float32) for each in pattern]
    return np.concatenate([*values, np.zeros(0, np.float32)])


def spans(pattern: str) -> list[str]:
    """The found segments, as the part of the pattern that they cover."""
    found = find_segments(audio(pattern), RATE, loud, start_ms=60, stop_ms=80)
    return [pattern[s.start_sample // FRAME : s.end_sample // FRAME] for s in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("..SSSS......", ["SSSS"]),
        ("..S.SSSS.SSS.....", ["SSSS.SSS"]),
        ("SSS....SSS....", ["SSS", "SSS"]),
        ("SSS...SSS", ["SSS...SSS"]),
        ("..SS..SS..", []),
        (".SSSSS", ["SSSSS"]),
        (".SS", []),
        ("SSSS....S..SSS....", ["SSSS", "SSS"]),
        ("", []),
    ],
)
def test_segments_begin_and_end_with_speech(pattern: str, expected: list[str]) -> None:
    assert spans(pattern) == expected


def test_segments_count_their_speech() -> None:
    (segment,) = find_segments(audio("SSSS.SS....."), RATE, loud, start_ms=60, stop_ms=80)
    assert segment == Segment(0, 7 * FRAME, 6 * FRAME)
    assert segment.samples == 7 * FRAME


def test_short_segments_can_be_left_out() -> None:
    activity = VoiceActivity(loud, RATE, start_ms=20, stop_ms=20)
    endpointer = Endpointer(min_samples=3 * FRAME)
    assert endpointer.push(activity.push(audio("SS..SSS.."))) == [
        Segment(4 * FRAME, 7 * FRAME, 3 * FRAME)
    ]


def test_a_segment_is_given_out_when_its_speaker_stops() -> None:
    activity, endpointer = VoiceActivity(loud, RATE, start_ms=60, stop_ms=80), Endpointer()
    assert endpointer.push(activity.push(audio("SSSS..."))) == []
    assert endpointer.speaking
    assert endpointer.push(activity.push(audio("."))) == [Segment(0, 4 * FRAME, 4 * FRAME)]
    assert not endpointer.speaking
    assert endpointer.flush() == []


@given(st.text("S.", max_size=40), st.lists(st.integers(1, 500), max_size=40))
def test_any_chunking_gives_the_same_segments(pattern: str, cuts: list[int]) -> None:
    samples = audio(pattern)
    expected = find_segments(samples, RATE, loud)
    activity, endpointer = VoiceActivity(loud, RATE), Endpointer()
    found: list[Segment] = []
    for piece in np.split(samples, np.unique(np.clip(np.cumsum(cuts, dtype=int), 0, len(samples)))):
        found += endpointer.push(activity.push(piece))
    found += endpointer.push(activity.flush()) + endpointer.flush()
    assert found == expected


@given(st.text("S.", max_size=60))
def test_segments_are_in_order_and_apart(pattern: str) -> None:
    found = find_segments(audio(pattern), RATE, loud, start_ms=40, stop_ms=60)
    edges = [edge for segment in found for edge in (segment.start_sample, segment.end_sample)]
    assert edges == sorted(set(edges))
    for segment in found:
        piece = pattern[segment.start_sample // FRAME : segment.end_sample // FRAME]
        assert piece[0] == piece[-1] == "S"
        assert piece.count("S") * FRAME == segment.speech_samples


def test_reset_forgets_an_open_segment() -> None:
    activity, endpointer = VoiceActivity(loud, RATE), Endpointer()
    endpointer.push(activity.push(audio("SSSSS")))
    endpointer.reset()
    assert endpointer.flush() == []
