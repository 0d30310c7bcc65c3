"""What can be measured on a reference recording; nothing here decides whether it is good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import soxr
import webrtcvad
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.signal import butter, sosfiltfilt

from cosyvoice_stream.attempts import restarts
from cosyvoice_stream.speakers import pitch_gap
from cosyvoice_stream.streaming.endpointing import Endpointer, Segment
from cosyvoice_stream.streaming.vad import IsSpeech, VoiceActivity
from cosyvoice_stream.types import Samples

RATE_HZ: Final = 24_000
"""Rate of everything behind the first resampling."""
FRAME_SAMPLES: Final = RATE_HZ // 50
"""20 ms, the frame of the speech detector and of all levels."""
PHRASE_GAP_S: Final = 0.35
"""Silence between two phrases; shorter ones belong to a phrase."""

_VAD_RATE_HZ = 16_000
_VAD_MODE = 2
_VAD_LEVEL_DBFS = -20.0
_VAD_MAX_GAIN_DB = 40.0
_SPEECH_RANGE_DB = 35.0
_HIGH_PASS_HZ = 40.0
_FLOOR_DB = -120.0
_FULL_SCALE = 0.99
_FLAT_RUN = 4
_ABRUPT_RANGE_DB = 15.0
_ABRUPT_NOISE_DB = 10.0
_DECAY_FRAMES = 5
_DECAY_RANGE_DB = 20.0
_BANDWIDTH_DB = -60.0
_BANDWIDTH_FFT = 1024
_TONAL_FFT = 1024
_TONAL_HOP = 256
_TONAL_TOP_BIN = 250
_TONAL_HELD_FRAMES = 12
_TONAL_PROMINENCE_DB = 12.0
_TONAL_RANGE_DB = 30.0


@dataclass(frozen=True, slots=True)
class Measurements:
    """Numbers about one recording."""

    duration_s: float
    speech_s: float
    """Length of the frames that the speech detector accepts and that are not far below the rest."""
    level_dbfs: float
    """Root mean square over the speech frames; over the loudest twentieth if there are none."""
    peak: float
    """Largest magnitude, 0 to 1."""
    clipped_ratio: float
    """Share of the samples that lie on a cut-off top."""
    snr_db: float
    """Mean power of speech above that of the quietest tenth of the frames."""
    level_spread_db: float
    """Between the 10th and the 95th percentile of the frame levels; speech has 25 or more, steady
    noise and tones less than 5."""
    tonal_ratio: float
    """Share of the spectral peaks that stay where they are for 200 ms: 0.01–0.06 in speech, 0.3–1
    in music and tones."""
    bandwidth_hz: float
    """Highest frequency that carries signal."""
    decay_db: float
    """How far the level falls within 100 ms where it falls fastest: 18–45 in a dry recording, 9–13
    with a reverberation time of 0.6 s, 6–8 with one of a second; noise bounds it as well."""
    pitch_gap_st: float
    """Between two groups of stretches of speech, in semitones; see `speakers.pitch_gap`."""
    longest_pause_s: float
    """Longest silence between two phrases."""
    attempts: int
    """How many times the speaker began with the same words; 1 is normal."""
    starts_abruptly: bool
    """The recording begins inside a word."""
    ends_abruptly: bool
    """The recording ends inside a word."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A recording made uniform, where its phrases are, and what was measured."""

    samples: Samples
    """Mono at `RATE_HZ`, without DC and rumble, at its own level."""
    phrases: tuple[Segment, ...]
    """Stretches of speech between pauses of `PHRASE_GAP_S` or more, in samples of `samples`."""
    restarts: tuple[int, ...]
    """Indices of phrases that begin with the words of an earlier one."""
    levels_dbfs: NDArray[np.float64]
    """Level of each frame of `FRAME_SAMPLES`, shape (T,)."""
    measured: Measurements


def speech_detector() -> IsSpeech:
    """Make a detector for `streaming.vad`; each recording needs its own, it adapts to noise."""
    detector: IsSpeech = webrtcvad.Vad(_VAD_MODE).is_speech
    return detector


def analyse(samples: Samples, sample_rate: int) -> Analysis:
    """Measure a recording of 0.1 s or more.

    Args:
        samples: Mono, finite.
        sample_rate: In hertz.
    """
    uniform = _uniform(samples, sample_rate)
    levels = frame_levels(uniform)
    loud = float(np.percentile(levels, 95))
    segments, speech = _find_speech(uniform, levels, loud)
    phrases = _join(segments, round(PHRASE_GAP_S * RATE_HZ))
    again = restarts(uniform, RATE_HZ, phrases)
    powers = 10 ** (levels / 10)
    speech_power = float(powers[speech].mean()) if speech.any() else 10 ** (loud / 10)
    noise_power = float(np.percentile(powers, 10)) + 10 ** (_FLOOR_DB / 10)
    above = max(speech_power - noise_power, noise_power * 1e-2)
    inside_word = max(loud - _ABRUPT_RANGE_DB, float(np.percentile(levels, 10)) + _ABRUPT_NOISE_DB)
    gaps = [
        later.start_sample - earlier.end_sample
        for earlier, later in zip(phrases, phrases[1:], strict=False)
    ]
    measured = Measurements(
        duration_s=len(samples) / sample_rate,
        speech_s=float(np.count_nonzero(speech)) * FRAME_SAMPLES / RATE_HZ,
        level_dbfs=10 * float(np.log10(speech_power)),
        peak=float(np.abs(samples).max()),
        clipped_ratio=_clipped_ratio(samples),
        snr_db=10 * float(np.log10(above / noise_power)),
        level_spread_db=loud - float(np.percentile(levels, 10)),
        tonal_ratio=_tonal_ratio(uniform),
        bandwidth_hz=min(_bandwidth_hz(uniform), sample_rate / 2),
        decay_db=_decay_db(levels, loud),
        pitch_gap_st=pitch_gap(uniform, RATE_HZ, phrases),
        longest_pause_s=max(gaps, default=0) / RATE_HZ,
        attempts=1 + len(again),
        starts_abruptly=bool(levels[:2].min() > inside_word),
        ends_abruptly=bool(levels[-2:].min() > inside_word),
    )
    return Analysis(uniform, tuple(phrases), tuple(again), levels, measured)


def _decay_db(levels: NDArray[np.float64], loud_dbfs: float) -> float:
    """Fall of the level within 100 ms, exceeded by a twentieth of the loud frames."""
    falls = levels[:-_DECAY_FRAMES] - levels[_DECAY_FRAMES:]
    falls = falls[levels[:-_DECAY_FRAMES] > loud_dbfs - _DECAY_RANGE_DB]
    return float(np.percentile(falls, 95)) if len(falls) else 0.0


def frame_levels(samples: Samples) -> NDArray[np.float64]:
    """Level of each whole 20 ms frame at `RATE_HZ` in dBFS, at least -120, shape (T,)."""
    count = len(samples) // FRAME_SAMPLES
    frames = samples[: count * FRAME_SAMPLES].reshape(count, FRAME_SAMPLES)
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    return np.asarray(10 * np.log10(power + 10 ** (_FLOOR_DB / 10)), np.float64)


def _uniform(samples: Samples, sample_rate: int) -> Samples:
    """Resample, then remove DC and rumble with a zero-phase high-pass."""
    if sample_rate != RATE_HZ:
        samples = soxr.resample(samples, sample_rate, RATE_HZ)
    sections = butter(2, _HIGH_PASS_HZ, "highpass", fs=RATE_HZ, output="sos")
    return np.asarray(sosfiltfilt(sections, samples - samples.mean()), np.float32)


def _find_speech(
    samples: Samples, levels: NDArray[np.float64], loud_dbfs: float
) -> tuple[list[Segment], NDArray[np.bool_]]:
    """Find speech in a recording whose level does not matter.

    Returns:
        Segments in samples at `RATE_HZ`, and per frame whether it is speech, shape (T,).
    """
    gain_db = min(_VAD_LEVEL_DBFS - loud_dbfs, _VAD_MAX_GAIN_DB)
    at_vad_rate = soxr.resample(samples, RATE_HZ, _VAD_RATE_HZ) * np.float32(10 ** (gain_db / 20))
    activity = VoiceActivity(speech_detector(), _VAD_RATE_HZ, stop_ms=200)
    frames = activity.push(at_vad_rate)
    speech = np.zeros(len(levels), np.bool_)
    verdicts = [frame.speech for frame in frames[: len(speech)]]
    speech[: len(verdicts)] = verdicts
    speech &= levels > loud_dbfs - _SPEECH_RANGE_DB
    endpointer = Endpointer()
    segments = endpointer.push(frames) + endpointer.flush()
    ratio = RATE_HZ / _VAD_RATE_HZ
    found = [
        Segment(round(s.start_sample * ratio), min(round(s.end_sample * ratio), len(samples)), 0)
        for s in segments
    ]
    return [s for s in (_count(segment, speech) for segment in found) if s.speech_samples], speech


def _count(segment: Segment, speech: NDArray[np.bool_]) -> Segment:
    first = segment.start_sample // FRAME_SAMPLES
    last = -(-segment.end_sample // FRAME_SAMPLES)
    frames = int(np.count_nonzero(speech[first:last]))
    return Segment(segment.start_sample, segment.end_sample, frames * FRAME_SAMPLES)


def _join(segments: Sequence[Segment], gap_samples: int) -> list[Segment]:
    """Join segments that are closer together than a pause."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and segment.start_sample - joined[-1].end_sample < gap_samples:
            last = joined.pop()
            speech = last.speech_samples + segment.speech_samples
            segment = Segment(last.start_sample, segment.end_sample, speech)
        joined.append(segment)
    return joined


def _clipped_ratio(samples: Samples) -> float:
    """Share of samples at full scale, or on a flat top that was cut off before it was attenuated.

    A flat top is a run of equal samples near the peak; even a 100 Hz sine at 48 kHz does not stay
    within 0.02 % of its peak for `_FLAT_RUN` samples.
    """
    magnitude = np.abs(samples)
    peak = float(magnitude.max())
    if peak == 0.0:
        return 0.0
    near = magnitude >= 0.9 * peak
    still = near[1:] & near[:-1] & (np.abs(np.diff(samples)) <= 2e-4 * peak)
    run = np.ones(_FLAT_RUN - 1, np.int64)
    flat = np.convolve(np.convolve(still, run, "valid") == len(run), np.ones(_FLAT_RUN), "full") > 0
    top = magnitude >= _FULL_SCALE
    top[: len(flat)] |= flat
    return float(np.count_nonzero(top)) / len(samples)


def _bandwidth_hz(samples: Samples) -> float:
    """Highest frequency whose power, exceeded in 5 % of the frames, is within 60 dB of the top."""
    if len(samples) < _BANDWIDTH_FFT:
        return RATE_HZ / 2
    frames = np.lib.stride_tricks.sliding_window_view(samples, _BANDWIDTH_FFT)
    frames = frames[:: _BANDWIDTH_FFT // 2]
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(_BANDWIDTH_FFT), axis=1)))
    strong = uniform_filter1d(np.percentile(power, 95, axis=0), 9)
    carrying = np.flatnonzero(strong >= strong.max() * 10 ** (_BANDWIDTH_DB / 10))
    return float(carrying[-1]) * RATE_HZ / _BANDWIDTH_FFT


def _tonal_ratio(samples: Samples) -> float:
    """Share of spectral peaks that hold their frequency; see `Measurements.tonal_ratio`.

    Only peaks within 30 dB of the recording's strongest count, so that mains hum under speech does
    not.
    """
    signal = soxr.resample(samples, RATE_HZ, _VAD_RATE_HZ)
    if len(signal) < _TONAL_FFT + _TONAL_HOP * _TONAL_HELD_FRAMES:
        return 0.0
    frames = np.lib.stride_tricks.sliding_window_view(signal, _TONAL_FFT)[::_TONAL_HOP]
    window = np.hanning(_TONAL_FFT).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(frames * window, axis=1))[:, :_TONAL_TOP_BIN]
    level = 20 * np.log10(spectrum + 1e-9)  # (T, D)
    peaks = np.zeros(level.shape, np.bool_)
    peaks[:, 1:-1] = (level[:, 1:-1] > level[:, :-2]) & (level[:, 1:-1] >= level[:, 2:])
    peaks &= level - uniform_filter1d(level, 25, axis=1) > _TONAL_PROMINENCE_DB
    peaks &= level > level.max() - _TONAL_RANGE_DB
    held = np.zeros(level.shape[1], np.int64)
    held_peaks = 0
    for row in peaks:
        held = np.where(row, held + 1, 0)
        held_peaks += int(np.count_nonzero(held >= _TONAL_HELD_FRAMES))
    return held_peaks / max(1, int(np.count_nonzero(peaks)))
