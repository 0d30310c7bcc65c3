"""The random part too equals the model's own rendering, given the same random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hibari import dsp

from cosyvoice_stream.lite import renderer as renderer_module
from cosyvoice_stream.lite.acoustic import BINS, AcousticModel
from cosyvoice_stream.lite.renderer import Renderer

pytestmark = pytest.mark.unit

SEED = 11


class Drawn:
    """Gives the numbers that the package draws all at once, frame by frame."""

    def __init__(self, frames: int) -> None:
        rng = np.random.default_rng(SEED)
        self.noise = rng.standard_normal((BINS, 2 * frames), np.float32).view(np.complex64)
        self.done = 0

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        part = np.ascontiguousarray(self.noise[:, self.done : self.done + shape[0]].T)
        self.done += shape[0]
        return part.view(dtype).reshape(shape)


@pytest.mark.parametrize("sizes", [[10_000], [16, 40], [1, 7]])
def test_equals_the_package(
    model: AcousticModel, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    (run,) = model.phonemes("She sells six thick thistles.", normalize=True)
    spectra = model.spectra(run, 1.0)
    # Its pulses differ in the last digits of their phase; everything behind them is compared.
    monkeypatch.setattr(dsp, "pulses", renderer_module.pulses)
    parts = (spectra.harmonic, spectra.theta, spectra.noise, spectra.free, spectra.phi)
    expected = dsp.synth(*(p.copy() for p in parts), spectra.f0, np.random.default_rng(SEED))
    renderer = Renderer(spectra, Drawn(spectra.frames))  # type: ignore[arg-type]
    pieces = []
    while not renderer.finished:
        pieces.append(renderer.render(sizes[len(pieces) % len(sizes)]))
    actual = np.concatenate(pieces)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() < 1e-5
