"""From a recording to the reference that an engine enrols: checked, trimmed, levelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.errors import EnrolmentRejected, UnsupportedFormat
from cosyvoice_stream.measurements import FRAME_SAMPLES, RATE_HZ, Analysis, analyse, frame_levels
from cosyvoice_stream.quality import (
    MAX_USED_S,
    MIN_DURATION_S,
    MIN_SPEECH_S,
    Policy,
    QualityItem,
    QualityReport,
    judge,
    judge_duration,
)
from cosyvoice_stream.streaming.endpointing import Segment
from cosyvoice_stream.types import ReferenceAudio, Samples

TARGET_DBFS: Final = -20.0
"""Root mean square of the speech in a reference."""
PEAK_LIMIT: Final = 0.9
"""Largest magnitude in a reference; it wins over `TARGET_DBFS`."""
LEAD_S: Final = 0.1
"""Recording kept before the first word."""
TAIL_S: Final = 0.4
"""Quiet after the last word: a cloning engine goes on with a reference that ends in speech."""

_FADE_S = 0.005
_ABRUPT_FADE_S = 0.03
_MIN_MEASURED_S = 0.1
_SMOOTHED_FRAMES = 5
_EARLIEST_CUT = 0.6
_MIN_RATE_HZ = 4_000
_MAX_RATE_HZ = 384_000


@dataclass(frozen=True, slots=True)
class PreparedReference:
    """A recording that was accepted."""

    reference: ReferenceAudio
    quality: QualityReport
    warnings: tuple[str, ...]
    """Sentences for the speaker; empty for a good recording."""


def prepare_reference(
    samples: Samples, sample_rate: int, policy: Policy = "warn"
) -> PreparedReference:
    """Check a recording and make a reference of its best part.

    The part is the stretch of at most `MAX_USED_S` with the most speech; it begins and ends in
    pauses, and holds one attempt where the speaker made several. Needs 17 ms of one core per second
    of recording (AMD EPYC); call it in a thread.

    Args:
        samples: Mono, at most a minute or so.
        sample_rate: In hertz.
        policy: How strict to be, see `quality.Policy`.

    Returns:
        The reference at 24 kHz, 3 to 10.5 s long.

    Raises:
        EnrolmentRejected: The recording cannot be used; `reason` is one of ``too_short``,
            ``no_speech``, ``too_quiet``, ``clipped``, ``music``, ``noisy`` and, under ``strict``,
            ``reverberant``, ``several_speakers``, ``several_attempts``, ``narrow_band``,
            ``cut_off``.
        UnsupportedFormat: The samples are not mono, finite, or at a known rate.
    """
    if samples.ndim != 1 or not _MIN_RATE_HZ <= sample_rate <= _MAX_RATE_HZ:
        raise UnsupportedFormat(
            f"{samples.ndim} dimensions at {sample_rate} Hz are not a recording",
            how_to_fix="record one channel at 8 to 48 kHz",
        )
    if not np.isfinite(samples).all():
        raise UnsupportedFormat(
            "the recording holds values that are not numbers",
            how_to_fix="send audio as numbers from -1 to 1",
        )
    if len(samples) < _MIN_MEASURED_S * sample_rate:
        item = judge_duration(len(samples) / sample_rate)
        raise _refused(item, QualityReport((item,)))
    analysis = analyse(np.asarray(samples, np.float32), sample_rate)
    report = QualityReport(judge(analysis.measured))
    if (refusal := report.refusal(policy)) is not None:
        raise _refused(refusal, report)
    first, last = choose_window(analysis)
    report = replace(report, used_start_s=first / RATE_HZ, used_s=(last - first) / RATE_HZ)
    reference = ReferenceAudio(
        _finish(analysis, first, last), RATE_HZ, analysis.measured.bandwidth_hz
    )
    return PreparedReference(reference, report, report.warnings)


def _refused(item: QualityItem, report: QualityReport) -> EnrolmentRejected:
    assert item.reason is not None
    assert item.message is not None
    assert item.advice is not None
    return EnrolmentRejected(item.reason, item.message, item.advice, report.to_json())


def choose_window(analysis: Analysis) -> tuple[int, int]:
    """Choose the part with the most speech that is short enough and holds one attempt.

    Returns:
        First sample and sample after the last, of `analysis.samples`.
    """
    limit = round((MAX_USED_S - LEAD_S - TAIL_S) * RATE_HZ)
    restarting = [analysis.phrases[index].start_sample for index in analysis.restarts]
    phrases = [piece for phrase in analysis.phrases for piece in _cut(phrase, limit, analysis)]
    enough = round(MIN_SPEECH_S * RATE_HZ)
    whole = _without_cut_words(phrases, analysis, enough)
    chosen = _most_speech(whole, limit, restarting)
    if sum(phrase.speech_samples for phrase in chosen) < enough:
        chosen = _most_speech(phrases, limit, [])
    return _with_margins(chosen, analysis)


def _cut(phrase: Segment, limit: int, analysis: Analysis) -> list[Segment]:
    """Cut a phrase that is longer than the limit at its quietest moments."""
    pieces: list[Segment] = []
    start = phrase.start_sample
    kernel = np.ones(_SMOOTHED_FRAMES) / _SMOOTHED_FRAMES
    levels = np.convolve(analysis.levels_dbfs, kernel, "same")
    while phrase.end_sample - start > limit:
        first = (start + round(_EARLIEST_CUT * limit)) // FRAME_SAMPLES
        last = (start + limit) // FRAME_SAMPLES
        quietest = first + int(np.argmin(levels[first:last]))
        end = quietest * FRAME_SAMPLES + FRAME_SAMPLES // 2
        pieces.append(Segment(start, end, end - start))
        start = end
    share = phrase.speech_samples / max(1, phrase.samples)
    pieces.append(Segment(start, phrase.end_sample, phrase.end_sample - start))
    return [replace(piece, speech_samples=round(piece.samples * share)) for piece in pieces]


def _without_cut_words(
    phrases: Sequence[Segment], analysis: Analysis, enough: int
) -> Sequence[Segment]:
    """Leave out phrases that begin or end inside a word, if enough speech remains."""
    kept = list(phrases)
    if analysis.measured.starts_abruptly and kept and kept[0].start_sample < RATE_HZ // 10:
        kept = kept[1:]
    if (
        analysis.measured.ends_abruptly
        and kept
        and kept[-1].end_sample > len(analysis.samples) - RATE_HZ // 10
    ):
        kept = kept[:-1]
    return kept if sum(phrase.speech_samples for phrase in kept) >= enough else phrases


def _most_speech(
    phrases: Sequence[Segment], limit: int, restarting: Sequence[int]
) -> Sequence[Segment]:
    """Choose neighbouring phrases; of equals the later ones, since a last attempt is the best."""
    best: Sequence[Segment] = ()
    best_speech = -1
    for first in range(len(phrases)):
        for last in range(first, len(phrases)):
            start, end = phrases[first].start_sample, phrases[last].end_sample
            if end - start > limit or any(start < again < end for again in restarting):
                break
            speech = sum(phrase.speech_samples for phrase in phrases[first : last + 1])
            if speech >= best_speech:
                best, best_speech = phrases[first : last + 1], speech
    return best


def _with_margins(chosen: Sequence[Segment], analysis: Analysis) -> tuple[int, int]:
    """Add what is quiet around the chosen phrases, up to the margins and the shortest length."""
    start, end = chosen[0].start_sample, chosen[-1].end_sample
    inside = any(p.start_sample < start < p.end_sample for p in analysis.phrases)
    before = [p.end_sample for p in analysis.phrases if p.end_sample <= start]
    quiet_from = start if inside else max(before, default=0)
    inside = any(p.start_sample < end < p.end_sample for p in analysis.phrases)
    after = [p.start_sample for p in analysis.phrases if p.start_sample >= end]
    quiet_to = end if inside else min(after, default=len(analysis.samples))
    missing = round(MIN_DURATION_S * RATE_HZ) - (end - start)
    lead = round(LEAD_S * RATE_HZ)
    tail = max(round(TAIL_S * RATE_HZ), missing - lead)
    return max(quiet_from, start - lead), min(quiet_to, end + tail)


def _finish(analysis: Analysis, first: int, last: int) -> Samples:
    """Cut, fade, level and end in silence."""
    used = analysis.samples[first:last].astype(np.float64)
    levels = frame_levels(analysis.samples[first:last])
    loud = float(np.percentile(levels, 95))
    quiet_frames = 0
    for level in levels[::-1]:
        if level > loud - 25.0:
            break
        quiet_frames += 1
    fade_s = _FADE_S if quiet_frames else _ABRUPT_FADE_S
    _fade(used, round(_FADE_S * RATE_HZ), round(fade_s * RATE_HZ))
    gain = 10 ** ((TARGET_DBFS - analysis.measured.level_dbfs) / 20)
    gain = min(gain, PEAK_LIMIT / max(float(np.abs(used).max()), 1e-6))
    silence = max(
        round(TAIL_S * RATE_HZ) - quiet_frames * FRAME_SAMPLES,
        round(MIN_DURATION_S * RATE_HZ) - len(used),
        0,
    )
    return np.concatenate([used * gain, np.zeros(silence)]).astype(np.float32)


def _fade(samples: NDArray[np.float64], first: int, last: int) -> None:
    samples[:first] *= np.linspace(0.0, 1.0, first)
    samples[-last:] *= np.linspace(1.0, 0.0, last)
