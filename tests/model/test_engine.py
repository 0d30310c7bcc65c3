"""The CosyVoice engine through its interface, on small random checkpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest
import torch

from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.cosyvoice.lm_runner import LmRunner
from cosyvoice_stream.cosyvoice.segment_audio import AudioRunner
from cosyvoice_stream.cosyvoice.worker import Worker
from cosyvoice_stream.errors import (
    EngineBusy,
    EngineDied,
    EnrolmentRejected,
    InvalidOption,
    SynthesisFailed,
)
from cosyvoice_stream.types import FLUSH, ReferenceAudio, SynthesisOptions, Voice
from support.mini_checkpoint import reference, speak, stream, with_engine

pytestmark = pytest.mark.model

VERSIONS = pytest.mark.parametrize("version", [2, 3])
TOLERANCE = 1e-4


@VERSIONS
def test_speaks_in_its_own_voice(version: int) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        assert engine.precision == "fp32"
        (voice,) = engine.info.voices
        spoken = await speak(engine, "hello.", voice)
        *rest, last = spoken.chunks
        assert last.final
        assert not any(chunk.final for chunk in rest)
        assert len(spoken.samples) > 2400
        assert np.isfinite(spoken.samples).all()
        position = 0
        for chunk in spoken.chunks:
            assert chunk.start_sample == position
            position += len(chunk.samples)

    with_engine(version, test)


@VERSIONS
def test_the_same_seed_gives_the_same_speech_alone_and_in_any_company(version: int) -> None:
    texts = ("hello.", "a b", "hello", "go", "hello!", "hm", "x", "hi.")

    async def test(engine: CosyVoiceEngine) -> None:
        voices = [await engine.enrol(reference(3 + i, i), "hello" if i else None) for i in (0, 1)]

        async def one(index: int) -> np.ndarray:
            spoken = await speak(engine, texts[index], voices[index % 2], seed=index)
            return spoken.samples

        alone = [await one(index) for index in range(len(texts))]
        rng = random.Random(version)
        together = await _with_leavers(engine, voices[0], [one(i) for i in range(8)], rng)
        for mine, solo in zip(together, alone, strict=True):
            assert len(mine) == len(solo)
            assert np.abs(mine - solo).max(initial=0) <= TOLERANCE
        others = await speak(engine, texts[1], voices[1], seed=99)
        assert (
            len(others.samples) != len(alone[1]) or np.abs(others.samples - alone[1]).max() > 0.01
        )

    with_engine(version, test)


async def _with_leavers(engine, voice, jobs, rng) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    """Run jobs while others come, and go before their end."""

    async def leaver(chunks_taken: int) -> None:
        text = stream("this one is not heard to its end, whatever it says.")
        chunks = engine.synthesize(text, voice, SynthesisOptions(seed=1))
        for _ in range(chunks_taken):
            await anext(chunks)
        await chunks.aclose()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job) for job in jobs]
        for _ in range(4):
            group.create_task(leaver(rng.randint(0, 2)))
    return [task.result() for task in tasks]


@VERSIONS
def test_the_first_audio_needs_the_first_hop_only(version: int) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), "hello there")
        steps = 0
        needed = []
        step, run = LmRunner.step, AudioRunner.run

        def counted(self: LmRunner, turns):  # type: ignore[no-untyped-def]
            nonlocal steps
            steps += 1
            return step(self, turns)

        def noted(self: AudioRunner, parts, wanted):  # type: ignore[no-untyped-def]
            waves = run(self, parts, wanted)
            if len(waves[0]):
                needed.append(steps)
            return waves

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LmRunner, "step", counted)
            patch.setattr(AudioRunner, "run", noted)
            await speak(engine, "hello.", voice)
        # Ten tokens that complete the block, and three of lookahead.
        assert needed[0] == 13

    with_engine(version, test)


def test_text_and_marks_make_no_audio_of_their_own() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        for text in ("", "   ", "。", "……", "!!!"):
            spoken = await speak(engine, text, voice)
            assert len(spoken.samples) == 0
            assert spoken.chunks[-1].final

    with_engine(3, test)


@VERSIONS
@pytest.mark.parametrize("interleave", [False, True])
def test_text_in_pieces_is_spoken_to_its_end(version: int, interleave: bool) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        text = "hello, hello hello."
        whole = await speak(engine, text, voice)
        pieces = await speak(engine, list(text), voice)
        flushed = await speak(engine, ["hello", FLUSH, " you."], voice)
        assert len(flushed.samples) > 0
        assert len(pieces.samples) > 0
        if not interleave:
            assert len(pieces.samples) == len(whole.samples)
            assert np.abs(pieces.samples - whole.samples).max() <= TOLERANCE

    with_engine(version, test, interleave_text=interleave)


@VERSIONS
def test_style_tempo_volume_and_steps(version: int) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), "hello there")
        plain = (await speak(engine, "hello.", voice)).samples
        styled = (await speak(engine, "hello.", voice, instruct="in a whisper")).samples
        assert len(styled) != len(plain) or np.abs(styled - plain).max() > 1e-3
        fast = (await speak(engine, "hello.", voice, speed=2.0)).samples
        assert len(fast) == pytest.approx(len(plain) / 2, rel=0.05)
        quiet = (await speak(engine, "hello.", voice, volume=0.5)).samples
        np.testing.assert_allclose(quiet, plain * 0.5, atol=TOLERANCE)
        steps = (await speak(engine, "hello.", voice, flow_steps=4)).samples
        assert len(steps) == len(plain)
        assert np.abs(steps - plain).max() > 1e-4
        steady = await speak(engine, "hello.", voice, temperature=0.2, top_k=1)
        assert len(steady.samples) > 0

    with_engine(version, test)


def test_a_pause_between_sentences() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        text = "hello hello hello hi. hello hello hello."
        plain = (await speak(engine, text, voice)).samples
        paused = (await speak(engine, text, voice, sentence_pause_ms=300)).samples
        assert len(paused) - len(plain) == 0.3 * 24_000

    with_engine(3, test)


def test_refuses_more_than_its_slots_and_goes_on() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        first = engine.synthesize(stream("hello."), voice, SynthesisOptions(seed=1))
        await anext(first)
        with pytest.raises(EngineBusy) as busy:
            await speak(engine, "hello.", voice)
        assert busy.value.retry_after_s > 0
        await first.aclose()
        assert len((await speak(engine, "hello.", voice)).samples) > 0

    with_engine(3, test, slots=1)


def test_refuses_what_memory_would_not_hold() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        first = engine.synthesize(stream("hello."), voice, SynthesisOptions(seed=1))
        await anext(first)
        with pytest.raises(EngineBusy, match="memory"):
            await speak(engine, "hello.", voice)
        await first.aclose()

    with_engine(3, test, memory_mb=1)


@pytest.mark.parametrize("stage", ["voice_state", "run"])
def test_out_of_memory_ends_the_utterance_and_not_the_engine(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        voice = await engine.enrol(reference(), "hello")
        loaded = engine._loaded
        assert loaded is not None
        loaded.worker.free_memory()

        def full(*_: object) -> None:
            raise torch.OutOfMemoryError("no memory")

        with monkeypatch.context() as patch:
            patch.setattr(AudioRunner, stage, full)
            with pytest.raises(EngineBusy, match="out of memory"):
                await speak(engine, "hello.", voice)
        assert len((await speak(engine, "hello.", voice)).samples) > 0

    with_engine(3, test)


def test_values_that_are_no_numbers_are_never_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        run = AudioRunner.run

        def broken(self, parts, wanted):  # type: ignore[no-untyped-def]
            return [wave * np.float32("nan") for wave in run(self, parts, wanted)]

        with monkeypatch.context() as patch:
            patch.setattr(AudioRunner, "run", broken)
            with pytest.raises(SynthesisFailed, match="no numbers"):
                await speak(engine, "hello.", voice)

    with_engine(3, test)


def test_a_long_recording_a_silent_one_and_too_many_are_refused() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        with pytest.raises(EnrolmentRejected, match="at most 30 s") as long:
            await engine.enrol(reference(31), None)
        assert long.value.reason == "too_long"
        with pytest.raises(EnrolmentRejected, match="silent"):
            await engine.enrol(ReferenceAudio(np.zeros(96_000, np.float32), 24_000, 12_000), None)
        with pytest.raises(EnrolmentRejected, match="1 to 5 recordings"):
            await engine.enrol_many([reference()] * 6, None)
        with pytest.raises(EnrolmentRejected, match="transcript"):
            await engine.enrol(reference(), "word " * 600)

    with_engine(3, test)


def test_several_recordings_average_the_speaker_and_the_first_leads() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        clips = [reference(3, seed) for seed in range(3)]
        single = [await engine.enrol(clip, None) for clip in clips]
        voice = await engine.enrol_many(clips, "hello")
        units = [v.tensors["embedding"] / np.linalg.norm(v.tensors["embedding"]) for v in single]
        np.testing.assert_allclose(voice.tensors["embedding"], np.mean(units, axis=0), atol=1e-6)
        np.testing.assert_array_equal(voice.tensors["tokens"], single[0].tensors["tokens"])
        assert voice.metadata["transcript"] == "hello"
        assert len((await speak(engine, "hello.", voice)).samples) > 0

    with_engine(3, test)


def test_voices_of_others_and_damaged_ones_are_refused() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        with pytest.raises(SynthesisFailed, match="another engine"):
            await speak(engine, "hello.", Voice("v", "V", "lite-1"))
        good = await engine.enrol(reference(), None)
        bad = dict(good.tensors) | {"mel": good.tensors["mel"][:-1]}
        with pytest.raises(SynthesisFailed, match="does not fit"):
            await speak(engine, "hello.", Voice("v", "V", engine.info.fingerprint, bad))

    with_engine(3, test)


@pytest.mark.parametrize(
    ("option", "value"),
    [("temperature", 0.0), ("top_p", 1.5), ("top_k", 0), ("flow_steps", 51), ("top_p", np.nan)],
)
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(InvalidOption, match=option):
        SynthesisOptions(**{option: value})


def test_closing_ends_what_runs() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices
        chunks = engine.synthesize(stream("hello there, you."), voice, SynthesisOptions(seed=1))
        await anext(chunks)
        await engine.close()
        await engine.close()
        with pytest.raises(SynthesisFailed):
            _ = [chunk async for chunk in chunks]
        with pytest.raises(EngineBusy):
            await speak(engine, "hello.", voice)
        await engine.start()
        assert len((await speak(engine, "hello.", engine.info.voices[0])).samples) > 0

    with_engine(3, test)


def test_a_device_thread_that_dies_takes_its_utterances_and_a_restart_mends_it() -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices

        def gone(*_: object) -> None:
            raise SystemExit

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Worker, "do", gone)
            with pytest.raises(EngineDied):
                await speak(engine, "hello.", voice)
            with pytest.raises(EngineDied):
                await speak(engine, "hello.", voice)
        await engine.close()
        await engine.start()
        assert len((await speak(engine, "hello.", voice)).samples) > 0

    with_engine(3, test)


@pytest.mark.parametrize("interleave", [False, True])
def test_a_text_stream_that_fails_ends_the_utterance(interleave: bool) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        (voice,) = engine.info.voices

        async def text() -> AsyncIterator[str]:
            yield "hello, hello hello, hello"
            raise ConnectionError("the writer is gone")

        with pytest.raises(ConnectionError, match="writer"):
            async for _ in engine.synthesize(text(), voice, SynthesisOptions(seed=1)):
                pass
        assert len((await speak(engine, "hello.", voice)).samples) > 0

    with_engine(3, test, interleave_text=interleave)
