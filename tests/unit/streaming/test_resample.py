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
ODD_HZ = 23_999
"""A rate with no common divisor, for which there are too many phases."""


def noise(count: int) -> Samples:
    return (np.random.default_rng(count).standard_normal(count) * 0.1).astype(np.float32)


def run(resampler: Resampler, pieces: list[Samples]) -> Samples:
    out = [y for piece in pieces for y in resampler.push(piece)] + resampler.flush()
    return np.concatenate([*out, np.zeros(0, np.float32)])


@settings(max_examples=40, deadline=None)
@given(
    source=st.sampled_from((16_000, 24_000, 48_000)),
    rate=st.sampled_from((*RATES, ODD_HZ)),
    sizes=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 3000)), min_size=1, max_size=12),
)
def test_any_chunking_gives_the_same_samples(source: int, rate: int, sizes: list[int]) -> None:
    samples = noise(sum(sizes))
    pieces = np.split(samples, np.cumsum(sizes)[:-1])
    resampler = Resampler(source, rate)
    whole = run(resampler, [samples])
    assert np.array_equal(run(resampler, pieces), whole)
    assert len(whole) == round(len(samples) * rate / source)


@pytest.mark.parametrize("rate", RATES)
def test_little_is_held_back(rate: int) -> None:
    resampler = Resampler(24_000, rate)
    samples = noise(24_000)
    taken = 0
    for pushed in range(24, 24_001, 24):
        taken += sum(map(len, resampler.push(samples[pushed - 24 : pushed])))
        assert pushed / 24_000 - taken / rate <= 0.0051


def test_a_flush_starts_another_stream() -> None:
    samples = noise(5_000)
    resampler = Resampler(24_000, 16_000)
    first = run(resampler, [samples])
    assert resampler.flush() == []
    assert np.array_equal(run(resampler, [samples]), first)
    resampler.push(samples)
    resampler.reset()
    assert resampler.flush() == []


@pytest.mark.parametrize("rate", [*RATES, ODD_HZ])
def test_a_tone_is_neither_shifted_nor_changed(rate: int) -> None:
    tones = [
        0.5 * np.sin(2 * np.pi * 3_000 * np.arange(hz) / hz).astype(np.float32)
        for hz in (24_000, rate)
    ]
    out = run(Resampler(24_000, rate), [tones[0]])
    assert np.abs(out - tones[1])[rate // 50 : -rate // 50].max() < 1e-3


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
