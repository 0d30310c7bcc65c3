"""The built-in voice moves towards a recording, and only as far as it is told."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import soxr

from cosyvoice_stream.errors import EnrolmentRejected
from cosyvoice_stream.lite.acoustic import BINS, AcousticModel
from cosyvoice_stream.lite.adaptation import (
    MAX_GAIN,
    MEAN_LOG_F0,
    STD_LOG_F0,
    Adaptation,
    Render,
    adapt,
    adapt_to,
    pitch_statistics,
    rms,
)
from cosyvoice_stream.lite.clause_audio import render_whole
from cosyvoice_stream.lite.engine import calibration_spectra
from cosyvoice_stream.pitch import track_pitch
from cosyvoice_stream.types import ReferenceAudio, Samples, Voice
from support.listening import read_wav, references

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def renderer(model: AcousticModel) -> Callable[[float], Render]:
    def prepare(ratio: float) -> Render:
        spectra = calibration_spectra(model, ratio)
        return lambda adaptation: render_whole(spectra, adaptation)

    return prepare


@pytest.fixture(scope="module")
def plain(renderer: Callable[[float], Render]) -> Samples:
    return renderer(1.0)(Adaptation())


def reference(name: str) -> ReferenceAudio:
    path = next(p for p in references() if name in p.name)
    samples, rate = read_wav(path)
    return ReferenceAudio(soxr.resample(samples, rate, 24_000), 24_000, 8_000)


@pytest.mark.parametrize("name", ["rms", "slt", "awb", "kal16", "ked"])
def test_pitch_and_level_follow_the_speaker(
    name: str, renderer: Callable[[float], Render], plain: Samples
) -> None:
    target = reference(name)
    began = time.process_time()
    adaptation = adapt_to(target, rms(plain), renderer)
    assert time.process_time() - began < 2.0  # half a second when nothing else runs
    wave = renderer(adaptation.formant_ratio)(adaptation)
    wanted, _ = pitch_statistics(track_pitch(target.samples, 24_000))
    got, _ = pitch_statistics(track_pitch(wave, 24_000))
    assert np.exp(got - wanted) == pytest.approx(1, abs=0.15)
    assert 20 * np.log10(rms(wave) / rms(plain)) == pytest.approx(0, abs=1)
    assert np.abs(adaptation.gain).max() <= MAX_GAIN + 1.5


def test_nothing_is_imitated_where_the_recording_is_empty(
    renderer: Callable[[float], Render], plain: Samples
) -> None:
    full = reference("awb")
    telephone = ReferenceAudio(
        soxr.resample(soxr.resample(full.samples, 24_000, 8_000), 8_000, 24_000), 24_000, 3_400
    )
    adaptation = adapt_to(telephone, rms(plain), renderer)
    level = float(np.median(adaptation.gain[400:]))
    assert np.abs(adaptation.gain[400:] - level).max() < 0.05, "8 kHz and up stay as they are"


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(96_000, np.float32),
        np.random.default_rng(0).standard_normal(96_000).astype(np.float32) * 0.1,
        np.zeros(100, np.float32),
    ],
    ids=["silence", "noise", "nearly nothing"],
)
def test_a_recording_without_a_voice_is_refused(
    samples: Samples, renderer: Callable[[float], Render]
) -> None:
    with pytest.raises(EnrolmentRejected) as refusal:
        adapt_to(ReferenceAudio(samples, 24_000, 12_000), 0.05, renderer)
    assert refusal.value.reason == "no_voiced_speech"


def test_strength_goes_part_of_the_way() -> None:
    gain = np.linspace(-1, 1, BINS, dtype=np.float32)
    half = Adaptation(MEAN_LOG_F0 - 0.6, STD_LOG_F0 + 0.1, 0.8, gain).scaled(0.5)
    assert half.mean_log_f0 == pytest.approx(MEAN_LOG_F0 - 0.3)
    assert half.std_log_f0 == pytest.approx(STD_LOG_F0 + 0.05)
    assert half.formant_ratio == pytest.approx(0.9)
    assert np.allclose(half.gain, gain / 2)


def test_no_adaptation_and_no_shift_change_nothing(model: AcousticModel) -> None:
    spectra = calibration_spectra(model, 1.0)
    assert adapt(spectra, None, 0.0) is spectra


@pytest.mark.parametrize("semitones", [-7.0, -3.0, 4.0, 9.0])
def test_a_shift_of_pitch_is_exact(model: AcousticModel, semitones: float) -> None:
    spectra = calibration_spectra(model, 1.0)
    shifted = adapt(spectra, None, semitones)
    voiced = spectra.f0 > 100  # lower ones would be held at the lowest pitch
    ratio = shifted.f0[voiced] / spectra.f0[voiced]
    assert np.allclose(ratio, 2 ** (semitones / 12), rtol=1e-3)


def test_a_voice_survives_storage() -> None:
    made = Adaptation(5.0, 0.2, 0.9, np.ones(BINS, np.float32))
    voice = Voice("id", "Name", "engine", made.tensors())
    read = Adaptation.from_voice(voice)
    assert read is not None
    assert read.mean_log_f0 == pytest.approx(5.0)
    assert np.array_equal(read.gain, made.gain)
    assert Adaptation.from_voice(Voice("heart", "Heart", "engine")) is None


@pytest.mark.parametrize(
    "tensors",
    [
        {"numbers": np.zeros(3, np.float32)},
        {"numbers": np.zeros(2, np.float32), "gain": np.zeros(BINS, np.float32)},
        {"numbers": np.zeros(3, np.float32), "gain": np.zeros(7, np.float32)},
        {"numbers": np.full(3, np.nan, np.float32), "gain": np.zeros(BINS, np.float32)},
    ],
)
def test_a_damaged_voice_is_refused(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="adaptation"):
        Adaptation.from_voice(Voice("id", "Name", "engine", tensors))
