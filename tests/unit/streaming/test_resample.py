"""Resampling: any chunking gives the same samples, nothing aliases, nothing is shifted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def noise(count: int) -> Samples:
    return (np.random.default_rng(count).standard_normal(count) * 0.1).astype(np.float32)


def run(resampler: Resampler, pieces: list[Samples]) -> Samples:
    out = [y for piece in pieces for y in resampler.push(piece)] + resampler.flush()
    return np.concatenate([*out, np.zeros(0, np.float32)])


@settings(max_examples=40, deadline=None)
@given(
    rate=st.sampled_from(RATES),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
)
def test_any_chunking_gives_the_same_samples(rate: int, sizes: list[int]) -> None:
    samples = noise(sum(sizes))
    pieces = np.split(samples, np.cumsum(sizes)[:-1])
    resampler = Resampler(24_000, rate)
    whole = run(resampler, [samples])
    assert np.array_equal(run(resampler, pieces), whole)
    assert len(whole) == round(len(samples) * rate / 24_000)


@pytest.mark.parametrize("rate", RATES)
def test_a_click_stays_where_it_is(rate: int) -> None:
    samples = np.zeros(24_000, np.float32)
    samples[12_000] = 1.0
    out = run(Resampler(24_000, rate), [samples])
    assert abs(int(np.argmax(np.abs(out))) - rate // 2) <= 1


def test_a_sweep_to_8_khz_does_not_alias() -> None:
    t = np.arange(24_000 * 4) / 24_000
    sweep = np.sin(2 * np.pi * (11_000 / 8) * t * t).astype(np.float32)  # 0 to 11 kHz in 4 s
    out = run(Resampler(24_000, 8_000), [sweep])
    # From here on the sweep is beyond 4.4 kHz; its end is a click, which has every frequency.
    above = out[round(8_000 * 4 * 4.4 / 11) : -400]
    assert 20 * np.log10(np.abs(above).max()) < -60


def test_equal_rates_pass_through_untouched() -> None:
    samples = noise(100)
    resampler = Resampler(24_000, 24_000)
    assert resampler.push(samples)[0] is samples
    assert resampler.flush() == []
