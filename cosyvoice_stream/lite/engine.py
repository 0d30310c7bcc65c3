"""The embedded engine: English on any CPU, first audio within tens of milliseconds."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from cosyvoice_stream.errors import (
    EngineBusy,
    ModelLoadError,
    SynthesisFailed,
    UnsupportedLanguage,
    VoiceStreamError,
)
from cosyvoice_stream.handover import close_stream, cut_text, make_wakeup, take_chunks
from cosyvoice_stream.lite.acoustic import (
    MODEL_SHA256,
    SAMPLE_RATE,
    AcousticModel,
    Spectra,
    package_version,
)
from cosyvoice_stream.lite.adaptation import REVISION, Adaptation, Render, adaptation_stages, rms
from cosyvoice_stream.lite.clause_audio import SPEED_RANGE, Delivery, render_whole, trim
from cosyvoice_stream.lite.phonemes import foreign_letters, spell_greek
from cosyvoice_stream.lite.pool import WorkPool
from cosyvoice_stream.lite.utterance import UtteranceWork
from cosyvoice_stream.streaming.clauses import Clause, ClauseSplitter
from cosyvoice_stream.streaming.languages import script_language, script_weights
from cosyvoice_stream.streaming.pcm import level_dbfs
from cosyvoice_stream.streaming.speech_marks import Kind, parse
from cosyvoice_stream.types import (
    MAX_SEED,
    EngineInfo,
    Feature,
    PcmChunk,
    ReferenceAudio,
    Samples,
    SynthesisOptions,
    TextStream,
    Voice,
)

NAME: Final = "lite"
LANGUAGES: Final = ("en",)
OTHER_ENGINES: Final = ("cosyvoice",)
"""Engines of this project that speak Chinese, Japanese, Korean and more."""
FINGERPRINT: Final = f"{NAME}-{MODEL_SHA256[:12]}-{REVISION}"
MAX_WAITING_CLAUSES: Final = 8
"""Text is taken no further ahead of speech than this."""
CALIBRATION_TEXT: Final = (
    "The early birds sang over quiet hills while children walked to school, "
    "and a warm breeze moved the tall grass beside the road."
)
WARM_UP_TEXT: Final = "Ready when you are, zorblaxian friend."
"""Its unknown word loads the part of the pronunciation rules that is loaded late."""
SILENT_DBFS: Final = -60.0


@dataclass
class _Loaded:
    """What exists between `start` and `close`."""

    model: AcousticModel
    pool: WorkPool
    plain_level: float


def check_language(text: str) -> None:
    """Refuse text in a script that the model would swallow without a word.

    Raises:
        UnsupportedLanguage: Names the language.
    """
    if any(piece.kind is Kind.PINYIN for piece in parse(text).pieces):
        raise UnsupportedLanguage("zh", NAME, OTHER_ENGINES)
    scripts = script_weights(spell_greek(text))
    scripts.pop("Latn", None)
    foreign = foreign_letters(text)
    if scripts or foreign:
        # Even one foreign word among Latin ones would be missing from the speech.
        language = script_language(text) or script_language(foreign) or "und"
        raise UnsupportedLanguage(language, NAME, OTHER_ENGINES)


def _load() -> tuple[AcousticModel, float]:
    """The model after a self-test, and the level of its calibration text.

    Raises:
        ModelLoadError: See `Engine.start`.
    """
    model = AcousticModel.load()
    try:
        chunks = _warm_up(model)
        plain = render_whole(calibration_spectra(model, 1.0), Adaptation())
    except Exception as error:
        raise ModelLoadError("the self-test of the embedded engine failed") from error
    if level_dbfs(np.concatenate(chunks)) < SILENT_DBFS:
        raise ModelLoadError("the self-test of the embedded engine was silent")
    return model, rms(plain)


def _warm_up(model: AcousticModel) -> list[Samples]:
    """Speak the warm-up text in this thread."""
    delivery = Delivery(None, 1.0, 0.0, 1.0)
    work = UtteranceWork(
        model, delivery, seed=0, normalize=True, max_buffered_s=60.0, arrived=lambda: None
    )
    work.feed(Clause(WARM_UP_TEXT, 0, len(WARM_UP_TEXT), True, True))
    work.finish()
    while work.has_step():
        work.step()
    chunks = []
    while (chunk := work.take()) is not None:
        chunks.append(chunk.samples)
    return chunks


class LiteEngine:
    """Implements `Engine` on the CPU with one built-in English voice, adapted to recordings.

    Args:
        threads: Threads that render; None takes one per core, at most two.
        max_buffered_s: Rendering of an utterance pauses while so much audio waits to be taken.
    """

    def __init__(self, threads: int | None = None, max_buffered_s: float = 2.0) -> None:
        self._threads = threads or min(2, os.cpu_count() or 1)
        self._max_buffered_s = max_buffered_s
        self._loaded: _Loaded | None = None
        self._starting = asyncio.Lock()
        self._info = EngineInfo(
            name=NAME,
            fingerprint=FINGERPRINT,
            sample_rate=SAMPLE_RATE,
            languages=LANGUAGES,
            features=frozenset(
                {
                    Feature.ADAPTATION,
                    Feature.WORD_TIMES,
                    Feature.VISEMES,
                    Feature.PITCH,
                    Feature.STRENGTH,
                    Feature.ARPABET,
                }
            ),
            voices=(Voice("heart", "Heart", FINGERPRINT),),
            description=(
                "English on the CPU; voice adaptation moves pitch, formants and timbre of one "
                f"built-in voice towards a recording (hibari-tts {package_version()})"
            ),
        )

    @property
    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return self._info

    async def start(self) -> None:
        """See `Engine.start`. Takes about a second."""
        async with self._starting:
            if self._loaded is None:
                model, plain_level = await asyncio.to_thread(_load)
                self._loaded = _Loaded(model, WorkPool(self._threads), plain_level)

    async def close(self) -> None:
        """See `Engine.close`."""
        async with self._starting:
            loaded, self._loaded = self._loaded, None
            if loaded is not None:
                await asyncio.to_thread(loaded.pool.close)

    def _running(self) -> _Loaded:
        if self._loaded is None:
            raise EngineBusy(1.0, "the engine is not running")
        return self._loaded

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        """See `Engine.enrol`. Adaptation needs no transcript."""
        loaded = self._running()
        work = _Enrolment(loaded, reference)
        loaded.pool.add(work, background=True)
        try:
            await work.done.wait()
        finally:
            await _leave(loaded.pool, work).wait()
        if isinstance(work.error, VoiceStreamError):
            raise work.error
        if work.error is not None:
            raise SynthesisFailed("the recording could not be analysed") from work.error
        assert work.adaptation is not None
        return Voice("", "", FINGERPRINT, work.adaptation.tensors())

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """See `Engine.synthesize`."""
        return self._synthesize(text, voice, options)

    async def _synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        loaded = self._running()
        if options.language is not None and options.language.split("-")[0].lower() != "en":
            raise UnsupportedLanguage(options.language, NAME, OTHER_ENGINES)
        arrived = asyncio.Event()
        work = UtteranceWork(
            loaded.model,
            delivery_of(voice, options),
            seed=secrets.randbelow(MAX_SEED + 1) if options.seed is None else options.seed,
            normalize=options.normalize,
            max_buffered_s=self._max_buffered_s,
            arrived=make_wakeup(asyncio.get_running_loop(), arrived),
        )
        taken = asyncio.Event()
        reader = asyncio.create_task(_read(text, work, loaded.pool, taken))
        loaded.pool.add(work, background=options.background)
        wake = partial(loaded.pool.wake, work)
        try:
            async with aclosing(take_chunks(work, wake, arrived, taken)) as chunks:
                async for chunk in chunks:
                    if chunk.final:
                        # What was wrong with the text is said after the audio before it.
                        await reader
                    yield chunk
        finally:
            reader.cancel()
            left = _leave(loaded.pool, work)
            await asyncio.gather(reader, left.wait(), return_exceptions=True)
            await close_stream(text)


async def _read(
    text: TextStream, work: UtteranceWork, pool: WorkPool, taken: asyncio.Event
) -> None:
    """Cut the text into clauses and feed them, not too far ahead."""

    async def feed(clauses: list[Clause]) -> None:
        for clause in clauses:
            check_language(clause.text)
            while work.waiting_clauses >= MAX_WAITING_CLAUSES:
                taken.clear()
                await taken.wait()
            work.feed(clause)
            pool.wake(work)

    try:
        await cut_text(text, ClauseSplitter(), feed)
    finally:
        work.finish()
        pool.wake(work)


def _leave(pool: WorkPool, work: UtteranceWork | _Enrolment) -> asyncio.Event:
    """Give work up at once; the event tells when no step of it runs any more."""
    left = asyncio.Event()
    pool.remove(work, make_wakeup(asyncio.get_running_loop(), left))
    return left


def delivery_of(voice: Voice, options: SynthesisOptions) -> Delivery:
    """How the options want a voice to speak.

    Raises:
        SynthesisFailed: The voice was made by another engine or is damaged.
    """
    try:
        adaptation = Adaptation.from_voice(voice)
    except ValueError as error:
        raise SynthesisFailed(
            "the voice does not fit this engine", how_to_fix="enrol its recording again"
        ) from error
    if adaptation is not None:
        adaptation = adaptation.scaled(options.strength) if options.strength > 0 else None
    return Delivery(
        adaptation, options.speed, options.pitch, options.volume, options.sentence_pause_ms
    )


def calibration_spectra(model: AcousticModel, ratio: float) -> Spectra:
    """The calibration text as it must be rendered for a formant ratio."""
    (run,) = model.phonemes(CALIBRATION_TEXT, normalize=False)
    speed = float(np.clip(1 / ratio, *SPEED_RANGE))
    return trim(model.spectra(run, speed))[0]


class _Enrolment:
    """Implements `Work`: finds an adaptation, stage by stage."""

    def __init__(self, loaded: _Loaded, reference: ReferenceAudio) -> None:
        self.done = asyncio.Event()
        self._wake: Callable[[], None] = make_wakeup(asyncio.get_running_loop(), self.done)
        self.adaptation: Adaptation | None = None
        self.error: Exception | None = None

        def renderer(ratio: float) -> Render:
            spectra = calibration_spectra(loaded.model, ratio)

            def render(adaptation: Adaptation) -> Samples:
                return render_whole(spectra, adaptation)

            return render

        self._stages = adaptation_stages(reference, loaded.plain_level, renderer)

    def has_step(self) -> bool:
        """See `Work.has_step`."""
        return self.adaptation is None and self.error is None

    def step(self) -> float:
        """See `Work.step`."""
        try:
            next(self._stages)
        except StopIteration as end:
            self.adaptation = end.value
            self._wake()
        return 0.0

    def fail(self, error: Exception) -> None:
        """See `Work.fail`."""
        self.error = error
        self._wake()
