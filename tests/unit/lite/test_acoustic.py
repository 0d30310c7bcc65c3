"""The model's own durations become times of words and mouth shapes."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.lite import acoustic
from cosyvoice_stream.lite.acoustic import BINS, AcousticModel
from cosyvoice_stream.types import Viseme

pytestmark = pytest.mark.unit

TEXT = "We saw five boats, and then we left."


def test_spectra_and_times(model: AcousticModel) -> None:
    (run,) = model.phonemes(TEXT, normalize=True)
    spectra = model.spectra(run, 1.0)
    assert spectra.harmonic.shape == (BINS, spectra.frames) == spectra.phi.shape
    starts = [word.start for word in spectra.words]
    assert starts == sorted(starts)
    for before, after in zip(spectra.words, spectra.words[1:], strict=False):
        assert before.start < before.end <= after.start
    assert spectra.words[-1].end <= spectra.frames
    for before, after in zip(spectra.visemes, spectra.visemes[1:], strict=False):
        assert before.end <= after.start
    assert {v.viseme for v in spectra.visemes} >= {Viseme.SS, Viseme.PP, Viseme.FF, Viseme.SIL}
    pause = next(v for v in spectra.visemes if v.viseme is Viseme.SIL)
    boats = next(w for w in spectra.words if w.word.text == "boats")
    assert pause.start >= boats.end - 1, "the first closed mouth is at the comma"


def test_words_stand_where_the_sound_is(model: AcousticModel) -> None:
    (run,) = model.phonemes(TEXT, normalize=True)
    spectra = model.spectra(run, 1.0)
    power = np.exp(2 * spectra.free).sum(0) + np.exp(2 * spectra.harmonic).sum(0)
    quiet = np.median(power[: spectra.words[0].start // 2])
    for word in spectra.words:
        assert power[word.start : word.end].max() > 30 * quiet, word.word.text


def test_speed_changes_the_length(model: AcousticModel) -> None:
    (run,) = model.phonemes(TEXT, normalize=True)
    frames = [model.spectra(run, speed).frames for speed in (0.5, 1.0, 2.0)]
    assert frames[0] > 1.6 * frames[1] > 2.2 * frames[2]


def test_another_model_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acoustic, "MODEL_SHA256", "0" * 64)
    with pytest.raises(ModelLoadError, match="not the expected one") as refusal:
        AcousticModel.load()
    assert "pip install" in str(refusal.value.how_to_fix)
