"""Clauses as audio: lengths, edges, marks and limits."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_stream.lite.acoustic import BINS, AcousticModel
from cosyvoice_stream.lite.adaptation import Adaptation
from cosyvoice_stream.lite.clause_audio import ClauseAudio, Delivery
from cosyvoice_stream.pitch import track_pitch
from cosyvoice_stream.streaming.pcm import soft_limit
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

TEXT = "Turn left at the next corner."
DEEP = Adaptation(4.7, 0.2, 0.86, np.zeros(BINS, np.float32))


def clause(model: AcousticModel, text: str, delivery: Delivery, seed: int = 1) -> ClauseAudio:
    (run,) = model.phonemes(text, normalize=True)
    return ClauseAudio(model, run, delivery, np.random.default_rng(seed), 100, 5_000)


def spoken(model: AcousticModel, text: str, **changes: float) -> Samples:
    values = {"adaptation": None, "speed": 1.0, "semitones": 0.0, "volume": 1.0} | changes
    audio = clause(model, text, Delivery(**values))  # type: ignore[arg-type]
    pieces = []
    while not audio.finished:
        pieces.append(audio.render())
    return np.concatenate(pieces)


@pytest.mark.parametrize("adaptation", [None, DEEP], ids=["plain", "adapted"])
def test_length_and_marks(model: AcousticModel, adaptation: Adaptation | None) -> None:
    audio = clause(model, TEXT, Delivery(adaptation, 1.0, 0.0, 1.0))
    pieces = []
    while not audio.finished:
        pieces.append(audio.render())
    assert sum(map(len, pieces)) == audio.length
    assert [TEXT[w.char_start - 100 : w.char_end - 100] for w in audio.words] == TEXT[:-1].split()
    times = [t for w in audio.words for t in (w.start_sample, w.end_sample)]
    assert times == sorted(times)
    assert 5_000 <= times[0] < times[-1] <= 5_000 + audio.length
    assert all(5_000 <= v.start_sample < v.end_sample for v in audio.visemes)


def test_there_is_little_silence_at_the_edges(model: AcousticModel) -> None:
    wave = np.abs(spoken(model, TEXT))
    loud = np.flatnonzero(wave > 0.003)
    assert loud[0] < 0.06 * 24_000
    assert len(wave) - loud[-1] < 0.12 * 24_000
    assert wave[0] < 1e-3
    assert wave[-1] < 1e-3


@pytest.mark.parametrize("text", ["A", "7", "No!", "Yes.", "I"])
def test_short_words_are_heard_and_short(model: AcousticModel, text: str) -> None:
    wave = spoken(model, text)
    assert 0.15 < len(wave) / 24_000 < 1.5
    assert np.abs(wave).max() > 0.05


def test_speed_pitch_and_volume(model: AcousticModel) -> None:
    plain = spoken(model, TEXT)
    assert len(spoken(model, TEXT, speed=0.5)) > 1.7 * len(plain)
    assert len(spoken(model, TEXT, speed=2.0)) < 0.7 * len(plain)
    for semitones in (-6.0, 6.0):
        shifted = spoken(model, TEXT, semitones=semitones)
        ratio = np.median(track_pitch(shifted, 24_000)) / np.median(track_pitch(plain, 24_000))
        assert ratio == pytest.approx(2 ** (semitones / 12), rel=0.08)
    assert np.abs(spoken(model, TEXT, volume=0.5)).max() == pytest.approx(
        np.abs(plain).max() / 2, rel=1e-3
    )
    assert not spoken(model, TEXT, volume=0.0).any()
    assert 0.5 < np.abs(spoken(model, TEXT, volume=2.0)).max() <= 1.0


def test_the_limiter_bends_and_never_wraps() -> None:
    ramp = np.linspace(-3, 3, 1001, dtype=np.float32)
    bent = soft_limit(ramp)
    assert np.all(np.diff(bent) >= 0)
    assert np.abs(bent).max() <= 1.0
    quiet = ramp[np.abs(ramp) < 0.8]
    assert np.array_equal(soft_limit(quiet), quiet)
