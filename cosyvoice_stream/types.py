"""Values that engines and everything above them exchange: frozen, typed, units on the fields."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.errors import InvalidOption

Samples: TypeAlias = NDArray[np.float32]
"""Mono audio, shape (N,), float32 in [-1, 1]."""


class Flush:
    """Marker in a text stream: speak what has arrived so far without waiting for more."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "FLUSH"


FLUSH: Final = Flush()
"""The only instance of `Flush` that is needed."""

TextStream: TypeAlias = AsyncIterator[str | Flush]
"""Text in arbitrary fragments, in order; a `Flush` between two fragments ends a clause."""

CONVERSION_HZ: Final = 16_000
"""Sample rate of speech that another voice is to say."""
SpeechStream: TypeAlias = "AsyncIterator[Samples] | Samples"
"""Mono speech at `CONVERSION_HZ`: fragments of any length as they come, or all of it."""


class Feature(StrEnum):
    """What an engine can do beyond plain synthesis."""

    CLONING = "cloning"
    """A voice is generated from the reference itself (timbre, rhythm, accent)."""
    ADAPTATION = "adaptation"
    """A fixed voice is moved towards the reference (pitch, formants, spectrum)."""
    INSTRUCT = "instruct"
    """A style instruction in words changes how the text is spoken."""
    WORD_TIMES = "word_times"
    VISEMES = "visemes"
    PITCH = "pitch"
    STRENGTH = "strength"
    SOUNDS = "sounds"
    """Sounds such as ``[laughter]`` within the text; see `streaming.speech_marks`."""
    ARPABET = "arpabet"
    """Words written in ARPAbet within the text."""
    PINYIN = "pinyin"
    """Syllables written in pinyin within the text."""
    CONVERSION = "conversion"
    """Recorded or live speech can be said by another voice; see `engine.Converter`."""
    SAMPLING = "sampling"
    """Speech is drawn at random: temperature, top_p, top_k and flow_steps change how."""


class Viseme(StrEnum):
    """The fifteen visemes of the Oculus lip-sync set."""

    SIL = "sil"
    PP = "PP"
    FF = "FF"
    TH = "TH"
    DD = "DD"
    KK = "kk"
    CH = "CH"
    SS = "SS"
    NN = "nn"
    RR = "RR"
    AA = "aa"
    E = "E"
    IH = "ih"
    OH = "oh"
    OU = "ou"


@dataclass(frozen=True, slots=True)
class WordMark:
    """When one word of the text is heard."""

    text: str
    """The word as it stands in the text that the engine was given."""
    char_start: int
    """Index of its first character in the concatenated text stream."""
    char_end: int
    """Index after its last character."""
    start_sample: int
    """First sample of the word, counted from the start of the utterance, at the engine's rate."""
    end_sample: int
    """Sample after the word."""


@dataclass(frozen=True, slots=True)
class VisemeMark:
    """Mouth shape over a stretch of audio."""

    viseme: Viseme
    mouth_open: float
    """How far the mouth is open, 0 (closed) to 1."""
    start_sample: int
    """First sample, counted from the start of the utterance, at the engine's rate."""
    end_sample: int
    """Sample after the stretch."""


@dataclass(frozen=True, slots=True)
class BookmarkMark:
    """When a place that the author of the text has named is heard."""

    name: str
    sample: int
    """Counted from the start of the utterance, at the engine's rate."""


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """A piece of one utterance. Chunks of an utterance are contiguous and in order."""

    samples: Samples
    """Mono samples at the engine's rate; empty only in a final chunk."""
    start_sample: int
    """Position of `samples[0]` in the utterance."""
    words: tuple[WordMark, ...] = ()
    """Words that start in this chunk or later; each word is reported once, no later than its
    audio."""
    visemes: tuple[VisemeMark, ...] = ()
    """Visemes that start in this chunk or later; each is reported once, no later than its audio."""
    final: bool = False
    """True on the last chunk of the utterance, and only there."""
    compute_s: float | None = None
    """Seconds of computation since the chunk before, by one worker; None if the engine does not
    measure it."""
    bookmarks: tuple[BookmarkMark, ...] = ()
    """Not from engines: places in SSML, reported no later than their audio."""


@dataclass(frozen=True, slots=True)
class ReferenceAudio:
    """A checked and trimmed recording of one speaker, ready for `Engine.enrol`."""

    samples: Samples
    """Mono samples, 3 to 30 s."""
    sample_rate: int
    """In hertz; the pipeline delivers 24000 (never upsampled beyond `bandwidth_hz` of content)."""
    bandwidth_hz: float
    """Highest frequency that carries signal: 4000 for a telephone recording stored at 24 kHz."""


@dataclass(frozen=True, slots=True)
class Voice:
    """What an engine needs to speak as someone: the cached, named result of an enrolment."""

    voice_id: str
    name: str
    engine: str
    """`EngineInfo.fingerprint` of the engine that made it; other engines must enrol the reference
    again."""
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Engine-defined arrays; empty for a voice that is built into the engine."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Engine-defined facts as strings (they are stored in a safetensors header)."""


SPEED_RANGE: Final = (0.5, 2.0)
PITCH_RANGE_SEMITONES: Final = (-12.0, 12.0)
VOLUME_RANGE: Final = (0.0, 2.0)
TEMPERATURE_RANGE: Final = (0.1, 2.0)
TOP_P_RANGE: Final = (0.05, 1.0)
TOP_K_RANGE: Final = (1, 1000)
FLOW_STEPS_RANGE: Final = (1, 50)
MAX_SEED: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Style:
    """How something is said, in terms of no model; the names are those of `streaming.style`."""

    dialect: str | None = None
    emotion: str | None = None
    pace: str | None = None
    loudness: str | None = None
    text: str | None = None
    """More, in words; never spoken."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """How one utterance is spoken.

    Raises:
        InvalidOption: A value is out of range or not finite.
    """

    language: str | None = None
    """BCP 47 tag of the text, or None to find it from the text."""
    instruct: str | None = None
    """Style in words, for engines with `Feature.INSTRUCT`; never spoken."""
    style: Style | None = None
    """For engines with `Feature.INSTRUCT`, which translate it; never spoken."""
    speed: float = 1.0
    """Tempo factor, 0.5 (slow) to 2.0 (fast)."""
    pitch: float = 0.0
    """Shift in semitones, -12 to 12."""
    volume: float = 1.0
    """Linear gain, 0 to 2; peaks are limited, never wrapped."""
    seed: int | None = None
    """Same engine, text, voice, options and seed: same samples. None draws one."""
    strength: float = 1.0
    """How far an adapted voice is moved towards its reference, 0 to 1."""
    normalize: bool = True
    """Read numbers, dates, units and abbreviations as words."""
    sentence_pause_ms: int | None = None
    """Silence between two sentences, for engines that make it themselves; None is their own."""
    temperature: float | None = None
    """Of the draw: below 1 steadier, above livelier; None is the engine's own."""
    top_p: float | None = None
    """Probability mass that is drawn from, 0 to 1; None is the engine's own."""
    top_k: int | None = None
    """Candidates that are drawn from, at least 1; None is the engine's own."""
    flow_steps: int | None = None
    """Steps from noise to mel, 1 to 50: fewer are faster, more are finer; None is the engine's
    own."""
    background: bool = False
    """Nobody listens while it is made: work for utterances that are heard goes first."""

    def __post_init__(self) -> None:
        for option, value, (low, high) in (
            ("speed", self.speed, SPEED_RANGE),
            ("pitch", self.pitch, PITCH_RANGE_SEMITONES),
            ("volume", self.volume, VOLUME_RANGE),
            ("strength", self.strength, (0.0, 1.0)),
        ):
            if not (math.isfinite(value) and low <= value <= high):
                raise InvalidOption(option, value, f"use a number from {low:g} to {high:g}")
        for name, given, (low, high) in (
            ("temperature", self.temperature, TEMPERATURE_RANGE),
            ("top_p", self.top_p, TOP_P_RANGE),
            ("top_k", self.top_k, TOP_K_RANGE),
            ("flow_steps", self.flow_steps, FLOW_STEPS_RANGE),
        ):
            if given is not None and not (math.isfinite(given) and low <= given <= high):
                raise InvalidOption(name, given, f"use a number from {low:g} to {high:g}")
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            raise InvalidOption("seed", self.seed, f"use a whole number from 0 to {MAX_SEED}")


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is and can do."""

    name: str
    """Such as ``"lite"``."""
    fingerprint: str
    """Changes whenever voices made by another build of the engine cannot be used; key of cached
    voices."""
    sample_rate: int
    """Of every `PcmChunk`, in hertz."""
    languages: tuple[str, ...]
    """BCP 47 tags that it speaks."""
    features: frozenset[Feature]
    voices: tuple[Voice, ...]
    """Built-in voices; the first one is the default."""
    description: str
    """One sentence for a person."""
