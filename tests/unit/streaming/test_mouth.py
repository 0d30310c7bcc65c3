"""The mouth opens with the sound, no later than it, and is closed in silence."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_stream.streaming.mouth import STEP_MS, MouthTrack
from cosyvoice_stream.types import Samples, Viseme, VisemeMark

pytestmark = pytest.mark.unit

RATE = 24_000
STEP = RATE * STEP_MS // 1000


def tone(ms: int, level: float = 0.3) -> Samples:
    made: Samples = level * np.sin(np.arange(ms * RATE // 1000) * 0.1, dtype=np.float32)
    return made.astype(np.float32)


def silence(ms: int) -> Samples:
    return np.zeros(ms * RATE // 1000, np.float32)


def test_it_follows_the_sound_within_one_step() -> None:
    sound = np.concatenate([silence(200), tone(200), silence(200)])
    values = MouthTrack(RATE).push(sound, final=True)
    open_at = [n * STEP_MS for n, value in enumerate(values) if value > 0.5]
    assert (open_at[0], open_at[-1]) == (220, 400)
    assert all(value == 0.0 for value in values[:11] + values[21:])


def test_there_are_at_least_30_values_a_second_and_the_last_one_is_closed() -> None:
    track = MouthTrack(RATE)
    values = track.push(tone(1000)) + track.push(tone(7), final=True)
    assert len(values) == 53
    assert (values[0], values[-1]) == (0.0, 0.0)
    assert all(0.0 <= value <= 1.0 for value in values)


@pytest.mark.parametrize("size", [1, 479, 480, 481, 5000])
def test_any_cutting_gives_the_same(size: int) -> None:
    sound = np.concatenate([tone(130), tone(90, 0.02), silence(55), tone(71)])
    whole = MouthTrack(RATE).push(sound, final=True)
    track, values = MouthTrack(RATE), []
    for start in range(0, len(sound), size):
        values += track.push(sound[start : start + size])
        # Every value up to the end of what was pushed has come with it: never late.
        assert len(values) == min(start + size, len(sound)) // STEP + 1
    assert values + track.push(silence(0), final=True) == whole


def test_lips_that_the_engine_closes_are_closed_in_sound() -> None:
    shapes = [
        VisemeMark(Viseme.AA, 0.8, 0, 5 * STEP),
        VisemeMark(Viseme.PP, 0.0, 5 * STEP, 10 * STEP),
    ]
    values = MouthTrack(RATE).push(tone(200), shapes, final=True)
    assert values[1:5] == [pytest.approx(0.8, abs=0.05)] * 4
    assert values[5:10] == [0.0] * 5


def test_louder_is_wider_and_nothing_is_nothing() -> None:
    track = MouthTrack(RATE)
    values = track.push(np.concatenate([tone(200, 0.5), tone(200, 0.06)]))
    assert values[5] > values[-1] > 0.0
    assert MouthTrack(RATE).push(silence(0), final=True) == []
