"""Voice adaptation in closed form: move the built-in voice towards a recording.

A source-filter model with four kinds of numbers, all read off the recording: the pitch
distribution, a formant ratio, an equaliser and a level. The formant ratio works by resampling the
finished audio, since warping the spectra would tear their phases; pitch and tempo are compensated
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from cosyvoice_stream.errors import EnrolmentRejected
from cosyvoice_stream.lite.acoustic import BINS, SAMPLE_RATE, FloatArray, Spectra
from cosyvoice_stream.lite.renderer import HIGHEST_HARMONIC_HZ, MAX_LOG, VOICED_HZ
from cosyvoice_stream.pitch import track_pitch
from cosyvoice_stream.types import ReferenceAudio, Samples, Voice

MEAN_LOG_F0: Final = float(np.log(203.0))
"""Of the built-in voice, as `track_pitch` hears it: recordings are measured the same way."""
FORMANT_LOG_F0: Final = float(np.log(187.0))
"""Pitch of a speaker whose vocal tract is as long as that of the built-in voice."""
STD_LOG_F0: Final = 0.19
OUTLIER_LOG_F0: Final = 0.7
FORMANT_SLOPE: Final = 0.22
"""Formant ratio per unit of log pitch: longer vocal tracts go with lower voices."""
FORMANT_RANGE: Final = (0.80, 1.12)
F0_RANGE_HZ: Final = (55.0, 600.0)
FREE_ATTENUATION: Final = 0.7
"""Nepers at most; the free part holds remains of harmonics at the old pitch."""
FREE_KNEE_HZ: Final = 2_000.0
FREE_SLOPE_HZ: Final = 300.0
MAX_GAIN: Final = 14 / 20 * np.log(10)
"""14 dB, in nepers."""
BANDS: Final = 48
BAND_RANGE_HZ: Final = (60.0, 11_500.0)
LEVEL_BANDS: Final = slice(4, 30)
"""Bands whose mean gain is zero: the equaliser colours, it does not amplify."""
SMOOTH_BANDS: Final = 1.2
LOUD_DB: Final = 26.0
ROUNDS: Final = 2
MAX_LEVEL_CHANGE: Final = 1.2
"""Nepers; limits what is corrected where a harmonic moves on or off a strong formant."""
MIN_VOICED_FRAMES: Final = 30
BIN_HZ: Final = 20.0 * np.arange(BINS)
SPECTRUM: Final = 1024
REVISION: Final = "3"
"""Changes when enrolled voices of an earlier revision must be made again."""


Render: TypeAlias = Callable[["Adaptation"], Samples]
"""Speaks the calibration text with an adaptation."""


@dataclass(frozen=True)
class Adaptation:
    """Where a voice stands relative to the built-in one."""

    mean_log_f0: float = MEAN_LOG_F0
    std_log_f0: float = STD_LOG_F0
    formant_ratio: float = 1.0
    """Below 1: a longer vocal tract."""
    gain: FloatArray | None = None
    """(601,) nepers per bin before resampling, level included; None for none."""

    def scaled(self, strength: float) -> Adaptation:
        """Go only part of the way, 0 to 1."""

        def part(value: float, neutral: float) -> float:
            return neutral + strength * (value - neutral)

        return Adaptation(
            part(self.mean_log_f0, MEAN_LOG_F0),
            part(self.std_log_f0, STD_LOG_F0),
            part(self.formant_ratio, 1.0),
            None if self.gain is None else self.gain * np.float32(strength),
        )

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """As arrays for the voice store."""
        gain = np.zeros(BINS, np.float32) if self.gain is None else self.gain
        numbers = (self.mean_log_f0, self.std_log_f0, self.formant_ratio)
        return {"numbers": np.array(numbers, np.float32), "gain": gain.astype(np.float32)}

    @classmethod
    def from_voice(cls, voice: Voice) -> Adaptation | None:
        """Read a voice; None for the built-in one.

        Raises:
            ValueError: The arrays are not what `tensors` makes.
        """
        if not voice.tensors:
            return None
        numbers, gain = voice.tensors.get("numbers"), voice.tensors.get("gain")
        for values, shape in ((numbers, (3,)), (gain, (BINS,))):
            if values is None or values.dtype.kind != "f" or values.shape != shape:
                raise ValueError("the voice does not hold an adaptation")
            if not np.isfinite(values).all():
                raise ValueError("the voice does not hold an adaptation: not finite")
        assert numbers is not None
        assert gain is not None
        mean, std, ratio = (float(number) for number in numbers)
        return cls(mean, std, float(np.clip(ratio, *FORMANT_RANGE)), gain.astype(np.float32))


def harmonic_level(harmonic: FloatArray, f0: FloatArray) -> NDArray[np.float64]:
    """Log amplitude of all harmonics of each frame together, were it voiced at a pitch: (T,).

    Args:
        harmonic: (601, T) log magnitude per bin.
        f0: (T,) hertz, above 0.
    """
    order = np.arange(1, int(HIGHEST_HARMONIC_HZ / f0.min()) + 1)
    place = order[:, None] * f0 / 20.0
    inside = place * 20.0 <= HIGHEST_HARMONIC_HZ
    bins = np.minimum(np.rint(place), BINS - 1).astype(np.int64)
    power = np.exp(2 * np.minimum(harmonic[bins, np.arange(len(f0))], MAX_LOG)) * inside
    return np.asarray(0.5 * np.log(power.sum(axis=0) + 1e-12))


def adapt(spectra: Spectra, adaptation: Adaptation | None, semitones: float) -> Spectra:
    """Change pitch, timbre and level of spectra; nothing to do returns them as they are.

    Args:
        spectra: From the acoustic model, not changed.
        adaptation: Where to go, or None.
        semitones: Further shift of pitch.
    """
    if adaptation is None and semitones == 0:
        return spectra
    target = adaptation or Adaptation()
    voiced = spectra.f0 > VOICED_HZ
    log_f0 = np.log(np.where(voiced, spectra.f0, 1.0))
    shift = semitones * np.log(2) / 12
    spread = np.clip(target.std_log_f0, 0.7 * STD_LOG_F0, 1.5 * STD_LOG_F0) / STD_LOG_F0
    moved = np.exp(target.mean_log_f0 + shift + (log_f0 - MEAN_LOG_F0) * spread)
    moved = np.clip(moved, *F0_RANGE_HZ) / target.formant_ratio
    f0 = np.where(voiced, moved, spectra.f0).astype(np.float32)
    # Fewer pulses a second carry less power, and harmonics meet other formants; the level stays.
    level = np.zeros(spectra.frames, np.float32)
    if voiced.any():
        part = spectra.harmonic[:, voiced]
        change = harmonic_level(part, spectra.f0[voiced]) - harmonic_level(part, f0[voiced])
        level[voiced] = np.clip(change, -MAX_LEVEL_CHANGE, MAX_LEVEL_CHANGE)
    distance = abs(target.mean_log_f0 + shift - MEAN_LOG_F0)
    depth = FREE_ATTENUATION * min(1.0, distance / 0.3)
    fade = depth / (1 + np.exp((BIN_HZ - FREE_KNEE_HZ) / FREE_SLOPE_HZ))
    gain = np.zeros(BINS, np.float32) if target.gain is None else target.gain
    return replace(
        spectra,
        harmonic=spectra.harmonic + level + gain[:, None],
        noise=spectra.noise + gain[:, None],
        free=spectra.free + gain[:, None] - (fade[:, None] * voiced).astype(np.float32),
        f0=f0,
    )


def _mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2595 * np.log10(1 + hz / 700)


def _band_centres() -> NDArray[np.float64]:
    low, high = _mel(np.array(BAND_RANGE_HZ))
    return np.asarray(700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1))


_EDGES_HZ: Final = _band_centres()
_CENTRES_HZ: Final = _EDGES_HZ[1:-1]


def _band_filters() -> NDArray[np.float64]:
    bins = np.arange(SPECTRUM // 2 + 1) * SAMPLE_RATE / SPECTRUM
    left, centre, right = _EDGES_HZ[:-2, None], _EDGES_HZ[1:-1, None], _EDGES_HZ[2:, None]
    triangles = np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre))
    triangles = np.maximum(triangles, 0)
    return np.asarray(triangles / np.maximum(triangles.sum(1, keepdims=True), 1e-9))


_FILTERS: Final = _band_filters()


def long_term_spectrum(samples: Samples) -> NDArray[np.float64]:
    """Mean log power of 48 mel bands over the loud frames of level-free audio at 24 kHz: (48,)."""
    level = np.sqrt(np.mean(samples.astype(np.float64) ** 2)) + 1e-9
    frames = np.lib.stride_tricks.sliding_window_view(samples / level, SPECTRUM)[:: SPECTRUM // 2]
    power = np.abs(np.fft.rfft(frames * np.hanning(SPECTRUM), axis=1)) ** 2
    loudness = power.sum(axis=1)
    power = power[loudness > loudness.max() * 10 ** (-LOUD_DB / 10)]
    return np.asarray(np.log(power @ _FILTERS.T + 1e-8).mean(axis=0))


def pitch_statistics(f0: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of log pitch without octave errors."""
    log_f0 = np.log(f0)
    kept = log_f0[np.abs(log_f0 - np.median(log_f0)) <= OUTLIER_LOG_F0]
    return float(kept.mean()), float(kept.std())


def adapt_to(
    reference: ReferenceAudio, plain_level: float, renderer: Callable[[float], Render]
) -> Adaptation:
    """Find the adaptation that brings the built-in voice near a recording, all at once.

    See `adaptation_stages`.
    """
    stages = adaptation_stages(reference, plain_level, renderer)
    while True:
        try:
            next(stages)
        except StopIteration as end:
            adaptation: Adaptation = end.value
            return adaptation


def adaptation_stages(
    reference: ReferenceAudio, plain_level: float, renderer: Callable[[float], Render]
) -> Generator[None, None, Adaptation]:
    """Find the adaptation that brings the built-in voice near a recording.

    A generator, so that live speech may come between its stages of some 10 ms.

    Args:
        reference: Checked recording.
        plain_level: `rms` of the calibration text in the built-in voice.
        renderer: Given a formant ratio, prepares the calibration text and returns what renders it
            with an adaptation of that ratio.

    Returns:
        The adaptation, as the value of the generator.

    Raises:
        EnrolmentRejected: Too little of the recording is voiced.
    """
    f0 = track_pitch(reference.samples, reference.sample_rate)
    if len(f0) < MIN_VOICED_FRAMES:
        raise EnrolmentRejected(
            "no_voiced_speech",
            "the recording holds too little voiced speech to find its pitch",
            "speak a full sentence in your normal voice; do not whisper",
        )
    mean, std = pitch_statistics(f0)
    ratio = float(np.clip(1 + FORMANT_SLOPE * (mean - FORMANT_LOG_F0), *FORMANT_RANGE))
    adaptation = Adaptation(mean, std, ratio)
    yield
    render = renderer(ratio)
    yield
    samples = reference.samples
    if reference.sample_rate != SAMPLE_RATE:
        samples = soxr.resample(samples, reference.sample_rate, SAMPLE_RATE)
    wanted = long_term_spectrum(samples)
    bandwidth_hz = min(reference.bandwidth_hz, reference.sample_rate / 2)
    audible = 0.9 * bandwidth_hz > _CENTRES_HZ
    gain = np.zeros(BINS)
    wave = render(adaptation)
    yield
    for _ in range(ROUNDS):
        difference = 0.5 * (wanted - long_term_spectrum(wave))
        difference -= difference[LEVEL_BANDS][audible[LEVEL_BANDS]].mean()
        # Where the recording has no signal there is nothing to imitate.
        difference[~audible] = 0.0
        difference = gaussian_filter1d(difference, SMOOTH_BANDS, mode="nearest")
        gain += np.interp(BIN_HZ, _CENTRES_HZ / ratio, difference)
        gain = np.clip(gain, -MAX_GAIN, MAX_GAIN)
        adaptation = replace(adaptation, gain=gain.astype(np.float32))
        wave = render(adaptation)
        yield
    gain += np.log(plain_level / rms(wave))
    return replace(adaptation, gain=gain.astype(np.float32))


def rms(samples: Samples) -> float:
    """Root mean square, never zero."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) + 1e-9
