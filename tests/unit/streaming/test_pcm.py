"""Samples and their wire forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosyvoice_stream.streaming import pcm

pytestmark = pytest.mark.unit


def test_every_16_bit_value_survives() -> None:
    values = np.arange(-32_768, 32_768).astype("<i2").tobytes()
    assert pcm.to_s16le(pcm.from_s16le(values)) == values


def test_peaks_are_clipped_not_wrapped() -> None:
    loud = np.array([1.5, -1.5, 1.0, -1.0], np.float32)
    assert pcm.to_int16(loud).tolist() == [32_767, -32_768, 32_767, -32_768]
    assert pcm.from_f32le(pcm.to_f32le(loud)).tolist() == [1.0, -1.0, 1.0, -1.0]


def test_level() -> None:
    assert pcm.level_dbfs(np.full(100, 0.1, np.float32)) == pytest.approx(-20)
    assert pcm.level_dbfs(pcm.silence(10)) == -math.inf
    assert pcm.level_dbfs(pcm.silence(0)) == -math.inf


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00"])
def test_half_a_sample_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="multiple"):
        pcm.from_s16le(data)
    with pytest.raises(ValueError, match="multiple"):
        pcm.from_f32le(data)


def test_a_sample_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="finite"):
        pcm.from_f32le(np.array([0.0, np.nan], "<f4").tobytes())
