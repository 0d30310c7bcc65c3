"""Speech that is said again in another voice, on small random checkpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.cosyvoice.reference_models import ReferenceModels
from cosyvoice_stream.cosyvoice.speech_source import TOKEN_SAMPLES
from cosyvoice_stream.cosyvoice.utterance import Utterance
from cosyvoice_stream.engine import Converter
from cosyvoice_stream.errors import EngineBusy
from cosyvoice_stream.types import (
    CONVERSION_HZ,
    Feature,
    Samples,
    SpeechStream,
    SynthesisOptions,
    Voice,
)
from support.mini_checkpoint import Spoken, reference, speak, stream, with_engine

pytestmark = pytest.mark.model

VERSIONS = pytest.mark.parametrize("version", [2, 3])
TOLERANCE = 1e-4
TOKEN_OUT = 960


def source(seconds: float, seed: int = 7) -> Samples:
    """Something to convert."""
    rng = np.random.default_rng(seed)
    return (0.1 * rng.standard_normal(round(seconds * CONVERSION_HZ))).astype(np.float32)


async def fragments(samples: Samples, rng: random.Random) -> AsyncIterator[Samples]:
    """The same as it would come from a microphone."""
    at = 0
    while at < len(samples):
        count = rng.choice((160, 320, 1600))
        yield samples[at : at + count]
        await asyncio.sleep(0)
        at += count


async def convert(
    engine: CosyVoiceEngine, speech: SpeechStream, voice: Voice, **options: Any
) -> Spoken:
    """Convert to the end."""
    options.setdefault("seed", 5)
    async with aclosing(engine.convert(speech, voice, SynthesisOptions(**options))) as chunks:
        return Spoken([chunk async for chunk in chunks])


@VERSIONS
def test_is_as_long_as_what_was_said_and_in_the_other_voice(version: int) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        assert isinstance(engine, Converter)
        assert Feature.CONVERSION in engine.info.features
        voices = [await engine.enrol(reference(3, seed), None) for seed in (0, 1)]
        samples = source(2.5)
        first, second = [(await convert(engine, samples, voice)).samples for voice in voices]
        assert len(first) == len(second) == 63 * TOKEN_OUT
        assert np.isfinite(first).all()
        assert np.abs(first - second).max() > 10 * TOLERANCE

    with_engine(version, test)


@VERSIONS
def test_what_is_heard_are_the_tokens_of_the_source(version: int) -> None:
    """Flow and vocoder, fed by hand with what the speech tokenizer says, give the same."""

    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)
        loaded = engine._loaded
        assert loaded is not None
        samples = source(1.5)
        heard = (await convert(engine, samples, voice)).samples
        tokens = loaded.references.speech_tokens(
            np.pad(samples, (0, -len(samples) % TOKEN_SAMPLES))
        )
        plan = engine._plan(loaded, voice, SynthesisOptions(seed=5))
        segment_seed = Utterance(plan, 1.0, lambda: None).noise_seed()
        audio = loaded.worker._audio
        state = audio.voice_state(plan.voice, plan.flow_steps)
        segment = audio.begin(state, plan.voice, 1.0, segment_seed)
        segment.tokens.extend(tokens.tolist())
        segment.complete = True
        waves = []
        while not segment.done:
            waves += audio.run([segment], [1])
        expected = np.concatenate(waves)
        assert len(heard) == len(expected) == len(tokens) * TOKEN_OUT
        assert np.abs(heard - expected).max() <= TOLERANCE

    with_engine(version, test)


@VERSIONS
def test_live_speech_does_not_depend_on_its_fragments_or_its_company(version: int) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), "hello there")
        samples = source(3.0)
        alone = (await convert(engine, fragments(samples, random.Random(0)), voice)).samples
        assert len(alone) == 75 * TOKEN_OUT
        spoken, mine, other = await asyncio.gather(
            speak(engine, "hello there.", voice),
            convert(engine, fragments(samples, random.Random(1)), voice),
            convert(engine, samples, voice, seed=6),
        )
        assert len(spoken.samples) > 0
        assert len(mine.samples) == len(alone)
        assert np.abs(mine.samples - alone).max() <= TOLERANCE
        assert len(other.samples) == len(alone)

    with_engine(version, test)


def test_live_speech_is_heard_before_it_ends() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)
        heard = asyncio.Event()

        async def speech() -> AsyncIterator[Samples]:
            yield source(1.5)
            await heard.wait()
            yield source(0.5)

        chunks = engine.convert(speech(), voice, SynthesisOptions(seed=1))
        async with asyncio.timeout(30), aclosing(chunks):
            count = 0
            async for chunk in chunks:
                count += len(chunk.samples)
                if count:
                    heard.set()
        assert count == 50 * TOKEN_OUT

    with_engine(3, test)


def test_long_speech_goes_on_over_its_segments() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(3), None)
        samples = source(32.0)
        spoken = await convert(engine, samples, voice, flow_steps=1)
        assert len(spoken.samples) == 800 * TOKEN_OUT

    with_engine(3, test)


def test_tempo_and_volume() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)
        samples = source(1.0)
        plain = (await convert(engine, samples, voice)).samples
        quiet = (await convert(engine, samples, voice, volume=0.5)).samples
        np.testing.assert_allclose(quiet, plain * 0.5, atol=TOLERANCE)
        fast = (await convert(engine, samples, voice, speed=2.0)).samples
        assert len(fast) == pytest.approx(len(plain) / 2, rel=0.05)

    with_engine(3, test)


def test_no_speech_gives_an_empty_utterance() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        for speech in (source(0), fragments(source(0), random.Random(0))):
            spoken = await convert(engine, speech, voice)
            assert len(spoken.samples) == 0
            assert spoken.chunks[-1].final

    with_engine(3, test)


def test_cancelling_frees_everything_and_closes_the_source() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)
        closed = asyncio.Event()

        async def speech() -> AsyncIterator[Samples]:
            try:
                yield source(2.0)
                await asyncio.Event().wait()
            finally:
                closed.set()

        chunks = engine.convert(speech(), voice, SynthesisOptions(seed=1))
        await anext(chunks)
        await chunks.aclose()
        assert closed.is_set()

    with_engine(3, test)


def test_counts_among_the_utterances_and_takes_no_slot_of_the_lm() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)
        text = engine.synthesize(stream("hello."), voice, SynthesisOptions(seed=1))
        await anext(text)
        with pytest.raises(EngineBusy):
            await convert(engine, source(1.0), voice)
        await text.aclose()

    with_engine(3, test, slots=1)


def test_a_source_that_fails_ends_the_utterance_and_not_the_engine() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), None)

        async def speech() -> AsyncIterator[Samples]:
            yield source(1.0)
            raise ConnectionError("the microphone is gone")

        with pytest.raises(ConnectionError, match="microphone"):
            await convert(engine, speech(), voice)

        def broken(*_: object) -> None:
            raise RuntimeError("no tokens")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReferenceModels, "speech_tokens", broken)
            with pytest.raises(RuntimeError, match="no tokens"):
                await convert(engine, source(1.0), voice)
        assert len((await convert(engine, source(1.0), voice)).samples) > 0

    with_engine(3, test)
