"""Speaker similarity for tests: the Resemblyzer encoder, whose weights ship in its package."""

from __future__ import annotations

import sys
import types
import warnings
from functools import cache
from typing import Any

import numpy as np


@cache
def _encoder() -> Any:
    # resemblyzer imports a scipy name that scipy 1.15 removed; it lives one level up.
    import scipy.ndimage

    legacy = types.ModuleType("scipy.ndimage.morphology")
    legacy.binary_dilation = scipy.ndimage.binary_dilation  # type: ignore[attr-defined]
    sys.modules.setdefault("scipy.ndimage.morphology", legacy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from resemblyzer import VoiceEncoder

        return VoiceEncoder("cpu", verbose=False)


def embedding(samples: np.ndarray, sample_rate: int) -> np.ndarray:
    """Embed a recording of one speaker as a unit vector, shape (256,).

    Args:
        samples: Mono float32, shape (N,), a second or more of speech.
        sample_rate: In hertz.
    """
    encoder = _encoder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from resemblyzer import preprocess_wav

        vector: np.ndarray = encoder.embed_utterance(
            preprocess_wav(samples.astype(np.float32), source_sr=sample_rate)
        )
        return vector


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of two embeddings."""
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))
