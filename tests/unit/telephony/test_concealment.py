"""What fills a gap: it goes on, it fades, and it has no edges."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_stream.telephony.concealment import Concealer
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

RATE = 8000


def tone(start: int, count: int) -> Samples:
    """A tone of 200 Hz at half scale."""
    places = np.arange(start, start + count)
    return (0.5 * np.sin(2 * np.pi * 200 * places / RATE)).astype(np.float32)


def test_a_tone_goes_on_through_a_lost_frame() -> None:
    concealer = Concealer(RATE)
    concealer.hear(tone(0, 800))
    assert np.abs(concealer.conceal(160) - tone(800, 160)).max() < 0.01


def test_a_long_gap_falls_silent() -> None:
    concealer = Concealer(RATE)
    concealer.hear(tone(0, 800))
    filled = np.concatenate([concealer.conceal(160) for _ in range(5)])
    assert np.abs(filled[:160]).max() > 0.45
    assert not filled[480:].any()


def test_there_is_no_jump_at_either_end() -> None:
    concealer = Concealer(RATE)
    steps = [concealer.hear(tone(0, 800)), concealer.conceal(160), concealer.conceal(160)]
    steps.append(concealer.hear(tone(1150, 160)))  # resumes out of phase
    whole = np.concatenate(steps)
    natural = np.abs(np.diff(tone(0, 800))).max()
    assert np.abs(np.diff(whole)).max() < 1.6 * natural


def test_without_a_gap_nothing_is_changed() -> None:
    concealer, samples = Concealer(RATE), tone(0, 320)
    assert concealer.hear(samples[:160]) is not None
    assert np.array_equal(concealer.hear(samples[160:]), samples[160:])


def test_a_gap_before_anything_was_heard_is_silence() -> None:
    concealer = Concealer(RATE)
    assert not concealer.conceal(160).any()
    concealer.hear(tone(0, 800))
    concealer.reset()
    assert not concealer.conceal(160).any()
