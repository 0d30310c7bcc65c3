"""The pitch tracker on signals whose pitch is known."""

from __future__ import annotations

import numpy as np
import pytest
import soxr

from cosyvoice_stream.lite.renderer import pulses
from cosyvoice_stream.pitch import track_pitch

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("hertz", [75, 100, 140, 187, 250, 340, 430])
def test_a_steady_voice(hertz: float) -> None:
    f0 = track_pitch(pulses(np.full(120, hertz, np.float32)), 24_000)
    assert len(f0) > 80
    assert np.median(f0) == pytest.approx(hertz, rel=0.01)
    assert np.percentile(np.abs(f0 / hertz - 1), 95) < 0.03, "octave errors"


def test_a_gliding_voice_in_noise() -> None:
    glide = np.linspace(100, 200, 240, dtype=np.float32)
    wave = pulses(glide)
    wave += np.random.default_rng(1).standard_normal(len(wave)).astype(np.float32) * wave.std() / 5
    f0 = track_pitch(wave, 24_000)
    assert f0[5] == pytest.approx(103, rel=0.08)
    assert f0[-5] == pytest.approx(197, rel=0.08)


def test_silence_and_noise_have_no_pitch() -> None:
    assert len(track_pitch(np.zeros(24_000, np.float32), 24_000)) == 0
    noise = np.random.default_rng(2).standard_normal(48_000).astype(np.float32)
    assert len(track_pitch(noise, 24_000)) < 10
    assert len(track_pitch(np.zeros(10, np.float32), 24_000)) == 0


def test_the_sample_rate_does_not_matter() -> None:
    wave = pulses(np.full(120, 150, np.float32))
    telephone = soxr.resample(wave, 24_000, 8_000)
    assert np.median(track_pitch(telephone, 8_000)) == pytest.approx(150, rel=0.02)
