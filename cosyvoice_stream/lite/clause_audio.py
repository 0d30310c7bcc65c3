"""One clause as audio: rendered, formants moved, silence at the edges cut, marks in samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import soxr

from cosyvoice_stream.lite.acoustic import FRAME_SAMPLES, SAMPLE_RATE, AcousticModel, Spectra
from cosyvoice_stream.lite.adaptation import Adaptation, adapt
from cosyvoice_stream.lite.phonemes import PhonemeRun
from cosyvoice_stream.lite.renderer import VOICED_HZ, Renderer
from cosyvoice_stream.streaming.pcm import soft_limit
from cosyvoice_stream.types import Samples, VisemeMark, WordMark

FIRST_FRAMES: Final = 16
"""200 ms: enough to start playing, made in a few milliseconds."""
NEXT_FRAMES: Final = 40
QUIET: Final = 10 ** (-46 / 20)
"""Frames below this part of the loudest one belong to the silence at the edges."""
HEAD_FRAMES: Final = 2
TAIL_FRAMES: Final = 5
FADE_SAMPLES: Final = 96
"""4 ms at both ends of a clause, so that it joins silence without a click."""
SPEED_RANGE: Final = (0.4, 2.6)


@dataclass(frozen=True)
class Delivery:
    """How a clause is spoken, fixed for an utterance."""

    adaptation: Adaptation | None
    speed: float
    semitones: float
    volume: float
    sentence_pause_ms: int | None = None

    @property
    def formant_ratio(self) -> float:
        """Rate of the rendered audio over the engine's rate."""
        return 1.0 if self.adaptation is None else self.adaptation.formant_ratio


def trim(spectra: Spectra) -> tuple[Spectra, int]:
    """Cut the silence at both ends; returns the rest and how many frames were cut in front."""
    voiced = spectra.f0 > VOICED_HZ
    power = np.exp(2 * spectra.free).sum(axis=0)
    power += voiced * np.exp(2 * np.minimum(spectra.harmonic, 7)).sum(axis=0)
    loud = np.flatnonzero(power > power.max() * QUIET**2)
    start = max(0, int(loud[0]) - HEAD_FRAMES)
    end = min(spectra.frames, int(loud[-1]) + 1 + TAIL_FRAMES)
    part = slice(start, end)
    rest = replace(
        spectra,
        harmonic=spectra.harmonic[:, part],
        theta=spectra.theta[:, part],
        noise=spectra.noise[:, part],
        free=spectra.free[:, part],
        phi=spectra.phi[:, part],
        f0=spectra.f0[part],
    )
    return rest, start


class ClauseAudio:
    """Renders one run of phonemes in pieces.

    Args:
        model: Speaks.
        run: What to say.
        delivery: How.
        rng: The utterance's own generator.
        text_start: Position of the clause in the utterance's text.
        start_sample: Position of the clause in the utterance's audio.
    """

    def __init__(
        self,
        model: AcousticModel,
        run: PhonemeRun,
        delivery: Delivery,
        rng: np.random.Generator | None,
        text_start: int,
        start_sample: int,
    ) -> None:
        ratio = delivery.formant_ratio
        speed = float(np.clip(delivery.speed / ratio, *SPEED_RANGE))
        spectra, cut = trim(model.spectra(run, speed))
        spectra = adapt(spectra, delivery.adaptation, delivery.semitones)
        self.length = round(spectra.frames * FRAME_SAMPLES / ratio)
        """Samples of the whole clause."""
        self._renderer = Renderer(spectra, rng)
        self._volume = np.float32(delivery.volume)
        self._resampler = None
        if ratio != 1.0:
            self._resampler = soxr.ResampleStream(
                SAMPLE_RATE * ratio, SAMPLE_RATE, 1, dtype="float32", quality="HQ"
            )
        self._given = 0

        def sample(frame: int) -> int:
            inside = min(max(frame - cut, 0), spectra.frames)
            return start_sample + round(inside * FRAME_SAMPLES / ratio)

        self.words = tuple(
            WordMark(
                timed.word.text,
                text_start + timed.word.start,
                text_start + timed.word.end,
                sample(timed.start),
                sample(timed.end),
            )
            for timed in spectra.words
        )
        self.visemes = tuple(
            VisemeMark(timed.viseme, timed.mouth_open, sample(timed.start), sample(timed.end))
            for timed in spectra.visemes
            if sample(timed.end) > sample(timed.start)
        )

    @property
    def finished(self) -> bool:
        """Whether everything has been given out."""
        return self._given >= self.length

    def render(self) -> Samples:
        """The next piece: (N,) samples at 24 kHz; N may be 0 while the resampler fills."""
        wave = self._renderer.render(NEXT_FRAMES if self._given else FIRST_FRAMES)
        last = self._renderer.finished
        if self._resampler is not None:
            wave = self._resampler.resample_chunk(wave, last=last)
        room = self.length - self._given
        wave = wave[:room]
        if last and len(wave) < room:
            wave = np.pad(wave, (0, room - len(wave)))
        return self._shape(wave)

    def _shape(self, wave: Samples) -> Samples:
        """Fade the edges of the clause, apply the volume, limit."""
        position = np.arange(self._given, self._given + len(wave))
        self._given += len(wave)
        edge = np.minimum(position + 1, self.length - position)
        if len(edge) and edge.min() < FADE_SAMPLES:
            near = np.minimum(edge, FADE_SAMPLES).astype(np.float32)
            ramp: Samples = near / np.float32(FADE_SAMPLES)
            wave = wave * ramp
        return soft_limit(wave * self._volume)


def render_whole(spectra: Spectra, adaptation: Adaptation) -> Samples:
    """Render trimmed spectra with an adaptation at once, without the random part."""
    wave = Renderer(adapt(spectra, adaptation, 0.0), None).render(spectra.frames)
    ratio = adaptation.formant_ratio
    return wave if ratio == 1.0 else soxr.resample(wave, SAMPLE_RATE * ratio, SAMPLE_RATE)
