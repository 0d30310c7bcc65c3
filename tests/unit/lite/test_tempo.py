"""Speech becomes as much faster or slower as it was asked for."""

from __future__ import annotations

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.lite.acoustic import BINS, SAMPLE_RATE, AcousticModel, stretch
from cosyvoice_stream.lite.adaptation import MEAN_LOG_F0, STD_LOG_F0, Adaptation
from cosyvoice_stream.lite.clause_audio import ClauseAudio, Delivery
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

TEXT = "A small river runs behind the old mill, and then it joins the wide lake near our town."


@given(
    durations=st.lists(st.integers(1, 15), min_size=1, max_size=60),
    tempo=st.floats(0.4, 2.6),
)
def test_rounding_is_passed_on(durations: list[int], tempo: float) -> None:
    given_durations = np.array(durations)
    stretched = stretch(given_durations, tempo)
    assert stretched.min() >= 1
    if tempo <= 1:  # nothing hits the shortest duration
        ends = np.cumsum(stretched) - np.cumsum(given_durations) / tempo
        assert np.abs(ends).max() <= 0.5 + 1e-6
    assert np.array_equal(stretch(given_durations, 1.0), given_durations)


@pytest.mark.parametrize("tempo", [0.5, 0.8, 1.16, 1.25, 1.35, 1.7, 2.0])
def test_length_follows_the_tempo(model: AcousticModel, tempo: float) -> None:
    (run,) = model.phonemes(TEXT, normalize=True)
    plain = model.spectra(run, 1.0)
    changed = model.spectra(run, tempo)
    assert plain.frames / changed.frames == pytest.approx(tempo, rel=0.02)
    assert changed.words[-1].end <= changed.frames
    middle = len(plain.words) // 2
    place = [s.words[middle].start / s.frames for s in (plain, changed)]
    assert place[0] == pytest.approx(place[1], abs=0.03), "all parts stretch alike"


def pieces_of(audio: ClauseAudio) -> Samples:
    pieces = []
    while not audio.finished:
        pieces.append(audio.render())
    return np.concatenate(pieces)


@pytest.mark.parametrize("ratio", [0.82, 0.93, 1.1])
def test_moving_formants_changes_neither_length_nor_place(
    model: AcousticModel, ratio: float
) -> None:
    (run,) = model.phonemes(TEXT, normalize=True)
    gain = np.zeros(BINS, np.float32)
    delivery = Delivery(Adaptation(MEAN_LOG_F0, STD_LOG_F0, ratio, gain), 1.0, 0.0, 1.0)

    def clause(delivery: Delivery) -> ClauseAudio:
        return ClauseAudio(model, run, delivery, np.random.default_rng(1), 0, 0)

    plain = clause(Delivery(None, 1.0, 0.0, 1.0))
    moved = clause(delivery)
    assert moved.length == pytest.approx(plain.length, rel=0.03)
    at_once = soxr.resample(
        clause(delivery)._renderer.render(100_000), SAMPLE_RATE * ratio, SAMPLE_RATE
    )
    streamed = pieces_of(moved)
    assert len(streamed) == moved.length
    inside = slice(1_000, min(len(streamed), len(at_once)) - 1_000)
    assert np.abs(at_once).max() < 0.8, "the limiter stays out of it"
    assert np.abs(streamed[inside] - at_once[inside]).max() < 2e-3, "a stream has no delay"
