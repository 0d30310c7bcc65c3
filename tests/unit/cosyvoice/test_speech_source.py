"""Speech that is to be converted, cut into windows for the speech tokenizer."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cosyvoice_stream.cosyvoice.speech_source import (
    LEFT_TOKENS,
    LONGEST_TOKENS,
    LONGEST_WHOLE_TOKENS,
    RIGHT_TOKENS,
    SHORTEST_TOKENS,
    STEP_TOKENS,
    TOKEN_SAMPLES,
    Window,
    WindowCutter,
    whole_windows,
)
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit


def ramp(tokens: float) -> Samples:
    """Samples that tell where they come from."""
    return np.arange(round(tokens * TOKEN_SAMPLES), dtype=np.float32) + 1


def cut(samples: Samples, rng: random.Random | None = None) -> list[Window]:
    """Push samples at once or in fragments."""
    cutter, out, at = WindowCutter(), [], 0
    while at < len(samples):
        count = len(samples) if rng is None else rng.choice((1, 160, 641, 9000))
        out += cutter.push(samples[at : at + count])
        at += count
    last = cutter.flush()
    return out if last is None else [*out, last]


def test_windows_keep_every_token_once_with_what_is_around_it() -> None:
    windows = cut(ramp(173.4))
    assert sum(window.count for window in windows) == 174
    token = 0
    for window in windows[:-1]:
        start = window.samples[window.first * TOKEN_SAMPLES]
        assert start == token * TOKEN_SAMPLES + 1
        assert window.first == min(token, LEFT_TOKENS)
        assert len(window.samples) == (window.first + STEP_TOKENS + RIGHT_TOKENS) * TOKEN_SAMPLES
        token += window.count
    assert windows[-1].closes
    assert len(windows[-1].samples) % TOKEN_SAMPLES == 0


def test_windows_do_not_depend_on_the_fragments() -> None:
    samples = np.random.default_rng(1).standard_normal(25 * 16_000).astype(np.float32)
    whole = cut(samples)
    for seed in range(3):
        for mine, other in zip(whole, cut(samples, random.Random(seed)), strict=True):
            np.testing.assert_array_equal(mine.samples, other.samples)
            assert (mine.first, mine.count, mine.closes) == (
                other.first,
                other.count,
                other.closes,
            )


def test_live_segments_end_in_a_pause_or_at_the_limit() -> None:
    tokens = LONGEST_TOKENS + SHORTEST_TOKENS + 60
    samples = np.full(tokens * TOKEN_SAMPLES, 0.1, np.float32)
    at = LONGEST_TOKENS + SHORTEST_TOKENS + 20
    samples[at * TOKEN_SAMPLES : (at + STEP_TOKENS) * TOKEN_SAMPLES] = 0
    ends, token = [], 0
    for window in cut(samples):
        token += window.count
        if window.closes:
            ends.append(token)
    assert ends == [LONGEST_TOKENS, at + STEP_TOKENS, tokens]


def test_a_whole_recording_is_one_segment_up_to_thirty_seconds() -> None:
    (window,) = whole_windows(ramp(LONGEST_WHOLE_TOKENS))
    assert (window.first, window.count, window.closes) == (0, LONGEST_WHOLE_TOKENS, True)


def test_a_longer_recording_is_cut_where_it_is_quietest() -> None:
    samples = np.full(1000 * TOKEN_SAMPLES, 0.1, np.float32)
    samples[400 * TOKEN_SAMPLES : 410 * TOKEN_SAMPLES] = 0.01
    counts = [window.count for window in whole_windows(samples)]
    assert counts == [410, 590]


def test_nothing_gives_no_window() -> None:
    assert cut(ramp(0)) == []
    assert whole_windows(ramp(0)) == []
