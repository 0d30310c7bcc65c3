from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.streaming.vad import FRAME_MS, RATES_HZ, VadFrame, VoiceActivity
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

RATE = 8_000
FRAME = 160


def loud(frame: bytes, rate: int) -> bool:
    """A detector that tests can script: speech is what is not zero."""
    return any(frame)


def audio(pattern: str) -> Samples:
    """One 20 ms frame per character, ``S`` for speech."""
    frames = [np.full(FRAME, 0.5 if each == "S" else 0.0, np.float32) for each in pattern]
    return np.concatenate([*frames, np.zeros(0, np.float32)])


def active(pattern: str, **options: int) -> str:
    activity = VoiceActivity(loud, RATE, **options)
    return "".join("#" if frame.active else "." for frame in activity.push(audio(pattern)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("..S.SSSS.SSS.....", "......#########.."),
        ("SSS", "..#"),
        ("SS.SS.SS.", "........."),
        ("SSSS...S...S....S", "..#############.."),
        ("", ""),
    ],
)
def test_hysteresis(pattern: str, expected: str) -> None:
    assert active(pattern, start_ms=60, stop_ms=80) == expected


def test_one_frame_is_enough_if_asked() -> None:
    assert active(".S.S..", start_ms=0, stop_ms=0) == ".#.#.."


@given(st.text("S.", max_size=30), st.lists(st.integers(1, 400), max_size=40))
def test_any_chunking_gives_the_same_frames(pattern: str, cuts: list[int]) -> None:
    samples = audio(pattern + ".")[: len(pattern) * FRAME + 37]
    whole = VoiceActivity(loud, RATE)
    expected = whole.push(samples) + whole.flush()
    pieces = VoiceActivity(loud, RATE)
    found: list[VadFrame] = []
    for piece in np.split(samples, np.unique(np.clip(np.cumsum(cuts, dtype=int), 0, len(samples)))):
        found += pieces.push(piece)
    assert found + pieces.flush() == expected
    assert [frame.start_sample for frame in expected] == list(range(0, len(samples), FRAME))
    assert expected[-1].end_sample == len(samples)


@pytest.mark.parametrize("rate", RATES_HZ)
@pytest.mark.parametrize("frame_ms", FRAME_MS)
def test_the_detector_gets_whole_frames(rate: int, frame_ms: int) -> None:
    sizes: set[tuple[int, int]] = set()

    def watch(frame: bytes, at_rate: int) -> bool:
        sizes.add((len(frame), at_rate))
        return False

    activity = VoiceActivity(watch, rate, frame_ms=frame_ms)
    activity.push(np.zeros(rate // 7, np.float32))
    activity.flush()
    assert sizes == {(2 * rate * frame_ms // 1000, rate)}


def test_samples_beyond_full_scale_do_not_wrap() -> None:
    frames: list[bytes] = []
    activity = VoiceActivity(lambda frame, rate: bool(frames.append(frame)), RATE)
    activity.push(np.full(FRAME, 3.0, np.float32))
    assert set(np.frombuffer(frames[0], "<i2")) == {32767}


def test_reset_starts_from_zero() -> None:
    activity = VoiceActivity(loud, RATE)
    activity.push(audio("SSSS")[:-5])
    activity.reset()
    assert activity.flush() == []
    assert activity.push(audio(".")) == [VadFrame(0, FRAME, False, False)]


@pytest.mark.parametrize(("rate", "frame_ms"), [(44_100, 20), (16_000, 25)])
def test_other_rates_and_frames_are_refused(rate: int, frame_ms: int) -> None:
    with pytest.raises(UnsupportedFormat, match="cannot be judged"):
        VoiceActivity(loud, rate, frame_ms=frame_ms)
