from __future__ import annotations

import numpy as np
import pytest
import soxr
import webrtcvad
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.streaming.recorder import Hint, Recorder, RecordingProgress
from cosyvoice_stream.types import Samples
from support.recordings import at_level, silence, speech, tone

pytestmark = pytest.mark.unit


def recorder(rate: int, **options: float) -> Recorder:
    return Recorder(rate, webrtcvad.Vad(2).is_speech, **options)  # type: ignore[arg-type]


def record(samples: Samples, rate: int = 16_000, **options: float) -> list[RecordingProgress]:
    return recorder(rate, **options).push(samples)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_every_rate_is_judged_alike(rate: int) -> None:
    samples = np.asarray(soxr.resample(speech(), 16_000, rate), np.float32)
    reports = record(samples, rate)
    assert [report.captured_ms for report in reports] == list(range(200, 4001, 200))
    assert reports[-1].speech_ms == pytest.approx(3_500, abs=300)
    assert reports[-1].hint is Hint.ENOUGH
    assert [report.speech_ms for report in reports] == sorted(r.speech_ms for r in reports)


@given(st.lists(st.integers(1, 9_000), max_size=30), st.sampled_from([16_000, 22_050]))
@settings(max_examples=20, deadline=None)
def test_any_chunking_gives_the_same_reports_and_recording(cuts: list[int], rate: int) -> None:
    samples = speech()
    whole = recorder(rate)
    expected = whole.push(samples) + whole.flush()
    pieces = recorder(rate)
    found: list[RecordingProgress] = []
    for piece in np.split(samples, np.unique(np.clip(np.cumsum(cuts, dtype=int), 0, len(samples)))):
        found += pieces.push(piece)
    assert found + pieces.flush() == expected
    np.testing.assert_array_equal(pieces.samples(), samples)


def test_hints_while_someone_begins_to_speak() -> None:
    hints = [report.hint for report in record(np.concatenate([silence(2), speech()]))]
    assert list(dict.fromkeys(hints)) == [Hint.SPEAK, Hint.MORE_SPEECH, Hint.ENOUGH]


def test_quiet_speech_should_be_louder() -> None:
    assert record(at_level(speech(), -45))[-1].hint is Hint.SPEAK_LOUDER
    assert record(at_level(speech(), -30))[-1].hint is Hint.ENOUGH


def test_sound_that_is_too_faint_to_be_heard_as_speech_should_be_louder() -> None:
    faint = Recorder(16_000, lambda frame, rate: False)
    assert faint.push(at_level(speech(), -50))[-1].hint is Hint.SPEAK_LOUDER


def test_clipping_is_too_loud_until_it_has_passed() -> None:
    loud = np.clip(speech() * 5, -1, 1).astype(np.float32)[:24_000]
    reports = record(np.concatenate([loud, at_level(speech(), -20)]))
    assert any(report.hint is Hint.TOO_LOUD for report in reports[:8])
    assert reports[-1].hint is Hint.ENOUGH


def test_a_long_recording_is_too_long() -> None:
    reports = record(np.tile(speech(), 8))
    assert {report.hint for report in reports if report.captured_ms > 30_000} == {Hint.TOO_LONG}
    assert reports[140].hint is Hint.ENOUGH


def test_what_exceeds_the_limit_is_dropped() -> None:
    limited = recorder(16_000, max_seconds=1.5)
    reports = limited.push(speech()) + limited.push(speech()) + limited.flush()
    assert [report.captured_ms for report in reports] == [
        200,
        400,
        600,
        800,
        1000,
        1200,
        1400,
        1500,
    ]
    assert reports[-1].hint is Hint.TOO_LONG
    assert limited.full
    assert limited.captured_samples == 24_000
    assert limited.captured_ms == 1_500
    np.testing.assert_array_equal(limited.samples(), speech()[:24_000])


def test_levels_are_those_of_the_last_stretch() -> None:
    reports = record(np.concatenate([silence(0.2), tone(200, 0.2, level=0.1)]))
    assert [report.level_dbfs for report in reports] == [-96.0, -23.0]


def test_the_rest_is_reported_on_flush() -> None:
    short = recorder(16_000)
    assert short.push(speech()[:1_600]) == []
    assert [report.captured_ms for report in short.flush()] == [100]
    assert short.flush() == []


def test_the_callers_array_may_be_reused() -> None:
    samples = speech()[:8_000].copy()
    kept = recorder(16_000)
    kept.push(samples)
    samples[:] = 0
    np.testing.assert_array_equal(kept.samples(), speech()[:8_000])


def test_reset_forgets_everything() -> None:
    # A detector of its own may adapt; this one does not.
    again = Recorder(22_050, lambda frame, rate: max(frame) > 200)
    first = again.push(speech())
    again.reset()
    assert again.captured_ms == 0
    assert len(again.samples()) == 0
    assert again.push(speech()) == first


def test_hints_are_stable_names() -> None:
    assert [str(hint) for hint in Hint] == [
        "speak", "speak_louder", "too_loud", "more_speech", "enough", "too_long",
    ]  # fmt: skip
