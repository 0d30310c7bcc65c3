"""The embedded engine through its interface."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import soxr

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    SynthesisFailed,
    UnsupportedLanguage,
)
from cosyvoice_stream.lite import utterance as utterance_module
from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.types import (
    FLUSH,
    Flush,
    PcmChunk,
    ReferenceAudio,
    Samples,
    SynthesisOptions,
    Voice,
)
from support.listening import read_wav, references

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def loaded_once(model: AcousticModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start engines with the model that is already there."""
    monkeypatch.setattr(AcousticModel, "load", lambda: model)


LONG = "We walked along the harbour, counted the boats, and talked about the summer. " * 12


def run(test: Callable[[LiteEngine], Awaitable[None]], **settings: Any) -> None:
    """Run a test with a started engine; nothing may be left in its pool."""

    async def body() -> None:
        engine = LiteEngine(**settings)
        await engine.start()
        try:
            async with asyncio.timeout(60):
                await test(engine)
            assert engine._loaded is None or len(engine._loaded.pool) == 0
        finally:
            await engine.close()

    asyncio.run(body())


@dataclass
class Source:
    """A text stream that knows whether it was closed."""

    pieces: Iterable[str | Flush]
    closed: bool = False
    taken: int = 0
    gate: asyncio.Event | None = None
    """Waited for before the end of the text."""
    iterator: Any = field(init=False)

    def __post_init__(self) -> None:
        self.iterator = iter(self.pieces)

    def __aiter__(self) -> AsyncIterator[str | Flush]:
        return self

    async def __anext__(self) -> str | Flush:
        try:
            piece = next(self.iterator)
        except StopIteration:
            if self.gate is not None:
                await self.gate.wait()
            raise StopAsyncIteration from None
        self.taken += 1
        return piece

    async def aclose(self) -> None:
        self.closed = True


async def speak(
    engine: LiteEngine, *pieces: str | Flush, voice: Voice | None = None, **options: Any
) -> list[PcmChunk]:
    options.setdefault("seed", 1)
    stream = engine.synthesize(
        Source(pieces), voice or engine.info.voices[0], SynthesisOptions(**options)
    )
    return [chunk async for chunk in stream]


def wave(chunks: list[PcmChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


def test_it_is_an_engine() -> None:
    engine = LiteEngine()
    assert isinstance(engine, Engine)
    assert engine.info.languages == ("en",)
    assert "adaptation" in engine.info.description
    assert "clon" not in engine.info.description


def test_chunks_are_contiguous_and_marks_come_in_time() -> None:
    async def test(engine: LiteEngine) -> None:
        text = "One boat, two boats, and $3.50 for you. Then we left! Did we?"
        chunks = await speak(engine, text)
        position = 0
        for chunk in chunks:
            assert chunk.start_sample == position
            assert all(word.start_sample >= position for word in chunk.words)
            assert all(viseme.start_sample >= position for viseme in chunk.visemes)
            position += len(chunk.samples)
        assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        words = [word for chunk in chunks for word in chunk.words]
        assert [w.text for w in words] == (
            [
                "One",
                "boat",
                "two",
                "boats",
                "and",
                "$3.50",
                "for",
                "you",
                "Then",
                "we",
                "left",
                "Did",
                "we",
            ]
        )
        assert all(text[w.char_start : w.char_end] == w.text for w in words)
        times = [t for w in words for t in (w.start_sample, w.end_sample)]
        assert times == sorted(times)
        assert times[-1] <= position
        assert sum(chunk.compute_s or 0 for chunk in chunks) > 0

    run(test)


def test_fragments_give_the_same_speech_as_the_whole_text() -> None:
    async def test(engine: LiteEngine) -> None:
        text = "It is 36.8 degrees, Dr. Smith. The train leaves at 9:30."
        whole = wave(await speak(engine, text))
        assert np.array_equal(wave(await speak(engine, *text)), whole)

    run(test)


def test_the_same_seed_gives_the_same_samples_alone_and_in_company() -> None:
    async def test(engine: LiteEngine) -> None:
        alone = wave(await speak(engine, LONG, seed=5))
        others = [speak(engine, LONG[n:], seed=n) for n in range(7)]
        together = await asyncio.gather(speak(engine, LONG, seed=5), *others)
        assert np.array_equal(wave(together[0]), alone)
        assert not np.array_equal(wave(await speak(engine, LONG, seed=6)), alone)

    run(test)


def test_clauses_join_without_a_click() -> None:
    async def test(engine: LiteEngine) -> None:
        samples = wave(await speak(engine, LONG))
        level = np.sqrt(np.convolve(samples**2, np.ones(240) / 240, "same"))
        quiet = level[1:] < 0.01
        assert np.abs(np.diff(samples))[quiet].max() < 0.08, "a click where nobody speaks"
        silent = level < 0.002
        edges = np.flatnonzero(np.diff(silent.astype(int)))
        lengths = np.diff(edges)[0 if silent[0] else 1 :: 2] / 24_000
        assert lengths.max() < 0.9, "a pause that sounds like an end"

    run(test)


def test_every_sentence_is_equally_loud() -> None:
    async def test(engine: LiteEngine) -> None:
        levels = []
        for text in ("The river runs behind the mill.", "Every window was open.", "We waited."):
            samples = wave(await speak(engine, text))
            loud = samples[np.abs(samples) > 0.01]
            levels.append(20 * np.log10(np.sqrt(np.mean(loud**2))))
        assert max(levels) - min(levels) < 3.0

    run(test)


@pytest.mark.parametrize("text", ["", "   ", "。", "……", "!!!", "🙂🙂", "——", "\n\n", "\x00"])
def test_nothing_to_say_ends_at_once(text: str) -> None:
    async def test(engine: LiteEngine) -> None:
        began = time.monotonic()
        (chunk,) = await speak(engine, text)
        assert time.monotonic() - began < 1.0
        assert chunk.final
        assert len(chunk.samples) == 0

    run(test)


@pytest.mark.parametrize("text", ["x" * 1_000, "\u200b\ufeff word \u202e", "\ud800 word", "naïve"])
def test_odd_text_is_spoken(text: str) -> None:
    async def test(engine: LiteEngine) -> None:
        assert np.abs(wave(await speak(engine, text))).max() > 0.05

    run(test)


@pytest.mark.parametrize(
    ("text", "language"),
    [("你好", "zh"), ("こんにちは世界", "ja"), ("Привет", "ru"), ("I said 你好 to them.", "zh")],
)
def test_a_foreign_script_is_refused(text: str, language: str) -> None:
    async def test(engine: LiteEngine) -> None:
        with pytest.raises(UnsupportedLanguage) as refusal:
            await speak(engine, text)
        assert refusal.value.language == language
        assert "cosyvoice" in refusal.value.engines
        assert len(wave(await speak(engine, "English goes on."))) > 12_000

    run(test)


def test_what_came_before_a_foreign_sentence_is_heard() -> None:
    async def test(engine: LiteEngine) -> None:
        heard: list[PcmChunk] = []
        text = Source(["This is fine. ", "Это нет."])

        async def listen() -> None:
            async for chunk in engine.synthesize(text, engine.info.voices[0], SynthesisOptions()):
                heard.append(chunk)

        with pytest.raises(UnsupportedLanguage):
            await listen()
        assert len(wave(heard)) > 12_000
        assert text.closed

    run(test)


def test_another_language_asked_for_is_refused() -> None:
    async def test(engine: LiteEngine) -> None:
        with pytest.raises(UnsupportedLanguage):
            await speak(engine, "Bonjour.", language="fr")
        assert len(wave(await speak(engine, "Hello.", language="en-GB"))) > 6_000

    run(test)


def test_speech_begins_before_the_text_ends() -> None:
    async def test(engine: LiteEngine) -> None:
        gate = asyncio.Event()
        text = Source(["The first sentence is here. ", "And"], gate=gate)
        stream = engine.synthesize(text, engine.info.voices[0], SynthesisOptions())
        first = await anext(stream)
        assert len(first.samples) > 0
        gate.set()
        rest = [chunk async for chunk in stream]
        assert rest[-1].final

    run(test)


def test_a_flush_speaks_at_once() -> None:
    async def test(engine: LiteEngine) -> None:
        gate = asyncio.Event()
        text = Source(["Half a sentence", FLUSH], gate=gate)
        stream = engine.synthesize(text, engine.info.voices[0], SynthesisOptions())
        assert len((await anext(stream)).samples) > 0
        await stream.aclose()
        assert text.closed

    run(test)


def test_rendering_stops_while_nobody_listens() -> None:
    async def test(engine: LiteEngine) -> None:
        text = Source([LONG] * 20)
        stream = engine.synthesize(text, engine.info.voices[0], SynthesisOptions())
        first = await anext(stream)
        assert engine._loaded is not None
        pool = engine._loaded.pool
        (work,) = list(pool._scheduler)
        async with asyncio.timeout(20):
            # The pool's threads signal what can be taken, not that they rest.
            while pool._running or work.has_step():  # noqa: ASYNC110
                await asyncio.sleep(0)
        buffered = sum(len(chunk.samples) for chunk in work._chunks)
        assert buffered < 2.0 * 24_000 + 24_000
        assert text.taken < 20, "text is taken far ahead of speech"
        assert len(first.samples) > 0
        await stream.aclose()

    run(test, max_buffered_s=2.0)


@pytest.mark.parametrize("chunks", [0, 1, 2, 5, 9])
def test_closing_the_iterator_cancels(chunks: int) -> None:
    async def test(engine: LiteEngine) -> None:
        text = Source([LONG] * 5)
        stream = engine.synthesize(text, engine.info.voices[0], SynthesisOptions())
        if chunks:
            for _ in range(chunks):
                await anext(stream)
        else:
            step = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        await stream.aclose()
        assert text.closed
        assert engine._loaded is not None
        assert len(engine._loaded.pool) == 0
        assert len(asyncio.all_tasks()) == 1

    run(test)


def test_samples_that_are_no_numbers_fail_one_utterance(monkeypatch: pytest.MonkeyPatch) -> None:
    render = utterance_module.ClauseAudio.render

    def broken(audio: utterance_module.ClauseAudio) -> Samples:
        samples = render(audio)
        if audio.words and audio.words[0].text == "Broken":
            samples[0] = np.nan
        return samples

    monkeypatch.setattr(utterance_module.ClauseAudio, "render", broken)

    async def test(engine: LiteEngine) -> None:
        bad, good = await asyncio.gather(
            speak(engine, "Broken glass."), speak(engine, "Whole glass."), return_exceptions=True
        )
        assert isinstance(bad, SynthesisFailed)
        assert isinstance(good, list)
        assert len(wave(good)) > 12_000

    run(test)


def test_closing_the_engine_ends_what_is_spoken() -> None:
    async def test(engine: LiteEngine) -> None:
        stream = engine.synthesize(Source([LONG] * 50), engine.info.voices[0], SynthesisOptions())
        await anext(stream)
        await engine.close()

        async def drain() -> None:
            async for _ in stream:
                pass

        with pytest.raises(SynthesisFailed):
            await drain()
        with pytest.raises(EngineBusy):
            await speak(engine, "Too late.")
        await engine.close()
        await engine.start()
        assert len(wave(await speak(engine, "Back."))) > 6_000

    run(test)


def recording(name: str) -> ReferenceAudio:
    path = next(p for p in references() if name in p.name)
    samples, rate = read_wav(path)
    return ReferenceAudio(soxr.resample(samples, rate, 24_000), 24_000, 8_000)


def test_an_enrolled_voice_speaks_and_strength_fades_it_out() -> None:
    async def test(engine: LiteEngine) -> None:
        voice = await engine.enrol(recording("rms"), None)
        assert voice.engine == engine.info.fingerprint
        plain = wave(await speak(engine, "We waited."))
        full = wave(await speak(engine, "We waited.", voice=voice))
        none = wave(await speak(engine, "We waited.", voice=voice, strength=0.0))
        assert np.array_equal(none, plain)
        assert not np.array_equal(full[: len(plain)], plain[: len(full)])
        chunks = await speak(engine, "One, two, three.", voice=voice, speed=1.3)
        words = [word for chunk in chunks for word in chunk.words]
        assert words[-1].end_sample <= len(wave(chunks))

    run(test)


def test_enrolment_says_no_and_lets_others_speak() -> None:
    async def test(engine: LiteEngine) -> None:
        silence = ReferenceAudio(np.zeros(96_000, np.float32), 24_000, 12_000)
        refusal, speech = await asyncio.gather(
            engine.enrol(silence, None), speak(engine, LONG), return_exceptions=True
        )
        assert isinstance(refusal, EnrolmentRejected)
        assert isinstance(speech, list)

    run(test)


def test_a_voice_of_another_engine_is_refused() -> None:
    async def test(engine: LiteEngine) -> None:
        stranger = Voice("id", "Name", "other", {"embedding": np.zeros(192)})
        with pytest.raises(SynthesisFailed, match="does not fit") as refusal:
            await speak(engine, "Hello.", voice=stranger)
        assert "enrol" in str(refusal.value.how_to_fix)

    run(test)
