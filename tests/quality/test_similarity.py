"""An adapted voice is nearer to its speaker than the built-in one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.listening import SAMPLE_RATE, read_wav, references, spoken
from support.speaker import embedding, similarity

pytestmark = pytest.mark.quality

TEXTS = [
    "The train to the airport leaves from platform four in ten minutes.",
    "Could you spell your last name for me, and tell me when you were born?",
    "Turn left at the next corner, then walk straight on until you see the bridge.",
]
MIN_MEAN_GAIN = 0.08


def test_similarity_rises_with_adaptation(tmp_path: Path) -> None:
    plain = [embedding(samples, SAMPLE_RATE) for samples in spoken(tmp_path / "plain", TEXTS)]
    gains = []
    for recording in references():
        target = embedding(*read_wav(recording))
        adapted = [
            embedding(samples, SAMPLE_RATE)
            for samples in spoken(tmp_path / recording.stem, TEXTS, recording)
        ]
        before = np.mean([similarity(target, one) for one in plain])
        after = np.mean([similarity(target, one) for one in adapted])
        print(f"{recording.stem}: {before:.3f} -> {after:.3f}")
        gains.append(after - before)
    assert np.mean(gains) >= MIN_MEAN_GAIN
    assert all(gain > 0 for gain in gains)
