"""Frame-by-frame rendering equals the model's own whole rendering, however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hibari import dsp
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.lite.acoustic import FRAME_SAMPLES, AcousticModel, Spectra
from cosyvoice_stream.lite.renderer import Renderer, pulses
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

SILENT = np.float32(-60.0)


@pytest.fixture(scope="module")
def spectra(model: AcousticModel) -> Spectra:
    (run,) = model.phonemes("A quick test of the renderer.", normalize=True)
    return model.spectra(run, 1.0)


def render(spectra: Spectra, sizes: list[int], seed: int | None = 3) -> Samples:
    renderer = Renderer(spectra, None if seed is None else np.random.default_rng(seed))
    pieces = []
    turn = 0
    while not renderer.finished:
        pieces.append(renderer.render(sizes[turn % len(sizes)]))
        turn += 1
    return np.concatenate(pieces)


def test_equals_the_whole_rendering_of_the_package(spectra: Spectra) -> None:
    no_noise = np.full_like(spectra.noise, SILENT)
    expected = dsp.synth(
        spectra.harmonic.copy(),
        spectra.theta.copy(),
        no_noise,
        spectra.free.copy(),
        spectra.phi.copy(),
        spectra.f0.copy(),
        np.random.default_rng(0),
    )
    actual = render(spectra, [spectra.frames], seed=None)
    assert len(actual) == len(expected) == spectra.frames * FRAME_SAMPLES
    # Their phase is summed up in float32, ours in float64.
    assert np.abs(actual - expected).max() < 3e-3


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_any_cutting_gives_the_same_samples(spectra: Spectra, sizes: list[int]) -> None:
    whole = render(spectra, [spectra.frames])
    assert np.abs(render(spectra, sizes) - whole).max() < 1e-6


def test_noise_follows_the_seed(spectra: Spectra) -> None:
    assert np.array_equal(render(spectra, [20], seed=1), render(spectra, [20], seed=1))
    assert not np.array_equal(render(spectra, [20], seed=1), render(spectra, [20], seed=2))


@pytest.mark.parametrize("hertz", [80.0, 187.0, 410.0])
def test_pulses_have_their_pitch_and_all_harmonics_alike(hertz: float) -> None:
    train = pulses(np.full(160, hertz, np.float32))
    spectrum = np.abs(np.fft.rfft(train * np.hanning(len(train))))
    bins = np.arange(1, 10) * hertz * len(train) / 24_000
    peaks = [spectrum[round(b) - 2 : round(b) + 3].max() for b in bins]
    assert max(peaks) / min(peaks) < 1.6
    between = spectrum[round(1.5 * hertz * len(train) / 24_000)]
    assert between < 0.02 * peaks[0]


def test_unvoiced_frames_have_no_pulses() -> None:
    assert not pulses(np.zeros(10, np.float32)).any()
