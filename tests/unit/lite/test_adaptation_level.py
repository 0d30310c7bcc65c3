"""What changes pitch keeps the level; recordings of any rate give the same voice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import soxr

from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.adaptation import (
    Adaptation,
    Render,
    adapt,
    adapt_to,
    adaptation_stages,
    harmonic_level,
    rms,
)
from cosyvoice_stream.lite.clause_audio import render_whole, trim
from cosyvoice_stream.lite.engine import calibration_spectra
from cosyvoice_stream.lite.renderer import Renderer
from cosyvoice_stream.types import ReferenceAudio
from support.listening import read_wav, references

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("semitones", [-12.0, -7.0, -3.0, 3.0, 5.0, 8.0])
def test_pitch_leaves_the_level_alone(model: AcousticModel, semitones: float) -> None:
    (run,) = model.phonemes("Turn left at the corner, then walk on.", normalize=True)
    spectra = trim(model.spectra(run, 1.0))[0]
    levels = [
        rms(Renderer(adapt(spectra, None, shift), None).render(spectra.frames))
        for shift in (0.0, semitones)
    ]
    assert 20 * np.log10(levels[1] / levels[0]) == pytest.approx(0, abs=1.5)


def test_speech_without_voice_can_be_moved(model: AcousticModel) -> None:
    (run,) = model.phonemes("Psst.", normalize=True)
    spectra = model.spectra(run, 1.0)
    whispered = replace(spectra, f0=np.zeros_like(spectra.f0))
    moved = adapt(whispered, None, 5.0)
    assert np.array_equal(moved.f0, whispered.f0)
    assert np.array_equal(moved.harmonic, whispered.harmonic)


def test_level_of_known_harmonics() -> None:
    flat = np.zeros((601, 2), np.float32)
    levels = harmonic_level(flat, np.array([100.0, 400.0], np.float32))
    assert np.exp(2 * levels) == pytest.approx([110, 27])


def test_a_little_strength_changes_little(model: AcousticModel) -> None:
    (run,) = model.phonemes("We waited.", normalize=True)
    spectra = model.spectra(run, 1.0)
    far = Adaptation(4.6, 0.1, 0.86, np.full(601, -1.0, np.float32))
    changes = []
    for strength in (0.0, 0.01, 0.1):
        moved = adapt(spectra, far.scaled(strength), 0.0)
        changes.append(float(np.abs(moved.harmonic - spectra.harmonic).mean()))
    assert changes[0] < 1e-4
    assert changes[0] < changes[1] < changes[2] < 0.5


def test_the_rate_of_the_recording_does_not_matter(model: AcousticModel) -> None:
    def renderer(ratio: float) -> Render:
        spectra = calibration_spectra(model, ratio)
        return lambda adaptation: render_whole(spectra, adaptation)

    samples, rate = read_wav(references()[0])
    assert rate == 16_000
    made = [
        adapt_to(ReferenceAudio(audio, hz, bandwidth), 0.05, renderer)
        for audio, hz, bandwidth in (
            (samples, 16_000, 12_000.0),  # more than the rate can carry
            (soxr.resample(samples, 16_000, 24_000), 24_000, 8_000.0),
        )
    ]
    assert made[0].mean_log_f0 == pytest.approx(made[1].mean_log_f0, abs=0.01)
    assert made[0].gain is not None
    assert made[1].gain is not None
    assert np.abs(made[0].gain - made[1].gain).mean() < 0.1


def test_enrolment_stops_often(model: AcousticModel) -> None:
    spectra = calibration_spectra(model, 1.0)
    samples, rate = read_wav(references()[0])
    stages = adaptation_stages(
        ReferenceAudio(samples, rate, 8_000.0),
        0.05,
        lambda ratio: lambda adaptation: render_whole(spectra, adaptation),
    )
    assert len(list(stages)) >= 5
