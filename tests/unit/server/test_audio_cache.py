"""The same request twice: spoken once, and the second time nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import ConfigError, SynthesisFailed
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.audio_cache import MAX_CHARS, AudioCache, RequestName
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.prompts import load_prompts, speak_prompts
from cosyvoice_stream.server.speech import AudioOut, MarksOut, SpeechService, Started
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.types import FLUSH, PcmChunk
from support.static_voices import StaticVoices

pytestmark = pytest.mark.unit

TEXT = "Hello *big* world"


class House:
    """A speech service with a cache."""

    def __init__(self, engine: FakeEngine | None = None, *, max_bytes: int = 10**6, **options: Any):
        self.engine = engine or FakeEngine()
        self.cache = AudioCache(max_bytes, **options)
        voices = StaticVoices(self.engine)
        self.service = SpeechService(self.engine, voices, Admission(8), cache=self.cache)

    def speak(self, said: Any = TEXT, /, **changes: Any) -> list[Any]:
        pinned = changes.pop("pinned", False)

        async def collect() -> list[Any]:
            settings = UtteranceSettings().merged({"seed": 7} | changes)
            async with self.service.speak(said, settings, pinned=pinned) as speech:
                return [event async for event in speech]

        return asyncio.run(collect())

    @property
    def spoken(self) -> int:
        return self.engine.counts.started


async def stream(*fragments: Any) -> AsyncIterator[Any]:
    for fragment in fragments:
        yield fragment


def audio(events: list[Any]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, AudioOut))


@pytest.mark.parametrize("output", [{}, {"sample_rate": 8000}, {"encoding": "mulaw"}])
def test_a_hit_is_what_was_spoken(output: dict[str, Any]) -> None:
    house = House()
    first = house.speak(output=output)
    again = house.speak(output=output)
    assert house.spoken == 1
    assert again[:-1] == first[:-1], "start, marks and frames"
    assert (again[-1].audio_ms, again[-1].characters) == (first[-1].audio_ms, len(TEXT))
    assert sum(isinstance(event, MarksOut) for event in again) > 0


def test_a_hit_is_shaped_and_encoded_as_asked() -> None:
    house = House()
    house.speak()
    sound = {"lead_in_ms": 100, "loudness_dbfs": -23}
    output = {"encoding": "pcm_f32le", "sample_rate": 48_000}
    hit = house.speak(output=output, sound=sound)
    assert house.spoken == 1
    assert audio(hit) == audio(House().speak(output=output, sound=sound))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 8},
        {"voice": "boop"},
        {"speed": 1.5},
        {"pitch": 1.0},
        {"volume": 0.5},
        {"strength": 0.5},
        {"language": "en"},
        {"instruct": "calm"},
        {"sound": {"sentence_pause_ms": 100}},
        {"text": {"normalize": False}},
        {"text": {"clean": False}},
    ],
)
def test_whatever_changes_the_speech_is_another_request(changes: dict[str, Any]) -> None:
    house = House()
    house.speak()
    house.speak(**changes)
    assert house.spoken == 2


def test_what_does_not_change_the_speech_is_the_same_request() -> None:
    house = House()
    house.speak()
    house.speak(priority="background", marks=["word"])
    house.speak("Hello **big** world")  # the engine is given the same words
    assert house.spoken == 1


def test_a_flush_changes_the_speech() -> None:
    house = House()
    house.speak("a b")
    house.speak(stream("a ", FLUSH, "b"))
    assert house.spoken == 2


def test_a_text_that_comes_in_pieces_is_not_looked_for() -> None:
    house = House()
    house.speak(stream(TEXT))
    house.speak(stream(TEXT))
    assert (house.spoken, len(house.cache)) == (2, 0)


def test_requests_without_a_seed_are_spoken_anew_unless_that_is_wanted() -> None:
    house = House()
    house.speak(seed=None)
    house.speak(seed=None)
    assert (house.spoken, len(house.cache)) == (2, 0)
    house = House(unseeded=True)
    first, again = house.speak(seed=None), house.speak(seed=None)
    assert house.spoken == 1
    assert isinstance(first[0], Started)
    assert first[0] == again[0], "the seed that it was spoken with is told"


def test_a_text_that_is_too_long_is_not_kept() -> None:
    house = House(FakeEngine(ms_per_char=1), max_bytes=10**9)
    house.speak("a" * (MAX_CHARS + 1))
    assert len(house.cache) == 0


def test_nothing_to_say_is_not_kept() -> None:
    house = House()
    house.speak("...")
    assert (len(house.cache), house.cache.size_bytes) == (0, 0)


def test_the_one_used_longest_ago_goes_first_and_the_budget_holds() -> None:
    one = 2 * 4 * 1200  # two characters
    house = House(max_bytes=3 * one)
    for text in ("aa", "bb", "cc", "aa", "dd"):
        house.speak(text)
        assert house.cache.size_bytes <= 3 * one
    assert house.spoken == 4
    house.speak("aa")
    assert house.spoken == 4
    house.speak("bb")
    assert house.spoken == 5


def test_what_does_not_fit_is_spoken_and_not_kept() -> None:
    house = House(max_bytes=5000)
    assert len(audio(house.speak())) == 2 * 1200 * len("Hello big world")
    assert (len(house.cache), house.cache.size_bytes) == (0, 0)


def test_an_utterance_that_is_cut_short_or_fails_is_not_kept() -> None:
    house = House(FakeEngine(fail_on={"boom": ValueError()}))

    async def cancel() -> None:
        settings = UtteranceSettings(seed=7)
        async with house.service.speak("many words here", settings) as speech:
            async for event in speech:
                if isinstance(event, AudioOut):
                    break
        assert house.cache.size_bytes == 0

    asyncio.run(cancel())
    with pytest.raises(SynthesisFailed):
        house.speak("well boom")
    assert (len(house.cache), house.cache.size_bytes) == (0, 0)
    house.speak("many words here")
    assert house.spoken == 3


def test_cancelling_a_hit_leaves_it_whole() -> None:
    house = House()
    whole = audio(house.speak())

    async def cancel() -> None:
        async with house.service.speak(TEXT, UtteranceSettings(seed=7)) as speech:
            await anext(speech)
            await anext(speech)
        assert house.service.admission.live == 0

    asyncio.run(cancel())
    assert audio(house.speak()) == whole
    assert house.spoken == 1


def test_nobody_can_change_what_is_kept() -> None:
    async def main() -> None:
        cache = AudioCache(10**6)

        async def chunks() -> AsyncIterator[PcmChunk]:
            yield PcmChunk(samples, 0, final=True)

        samples = np.ones(10, np.float32)
        name = RequestName(b"x", "v", 1)
        async for chunk in cache.record(name, 1, chunks()):
            chunk.samples[:] = 0
        kept = cache.find(name)
        assert kept is not None
        assert (kept.chunks[0].samples == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            kept.chunks[0].samples[:] = 0

    asyncio.run(main())


def test_a_deleted_voice_is_forgotten_even_while_it_speaks() -> None:
    house = House()
    house.speak()
    house.speak(voice="boop")

    async def speak_on() -> None:
        async with house.service.speak("more words", UtteranceSettings(seed=7)) as speech:
            async for event in speech:
                if isinstance(event, Started):
                    house.cache.forget_voice("beep")

    asyncio.run(speak_on())
    assert len(house.cache) == 1
    house.speak(voice="boop")
    assert house.spoken == 3


def test_another_build_of_the_engine_is_another_engine() -> None:
    house = House()
    house.speak()
    house.engine._info = replace(house.engine.info, fingerprint="fake-2")
    house.speak()
    assert house.spoken == 2


def prompts_file(folder: Path, text: str) -> Path:
    path = folder / "prompts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_prompts_answer_requests_without_a_seed_and_stay(tmp_path: Path) -> None:
    file = prompts_file(
        tmp_path,
        '[[prompt]]\ntext = "Press one"\n'
        '[[prompt]]\ntext = "Press two"\nvoice = "boop"\nseed = 3\n',
    )
    house = House(max_bytes=2 * 9 * 4 * 1200)
    asyncio.run(speak_prompts(house.service, load_prompts(file, UtteranceSettings())))
    assert (house.spoken, house.cache.pinned) == (2, 2)
    house.speak("Press one", seed=None)
    house.speak("Press two", seed=3, voice="boop")
    assert house.spoken == 2
    house.speak("Press two", seed=None, voice="boop")  # it has a seed of its own
    house.speak("something that takes up room")
    house.speak("Press one", seed=None)
    assert house.spoken == 4


def test_a_prompt_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    file = prompts_file(
        tmp_path, '[[prompt]]\ntext = "x"\nvoice = "nobody"\n[[prompt]]\ntext = "y"\n'
    )
    house = House()
    asyncio.run(speak_prompts(house.service, load_prompts(file, UtteranceSettings())))
    assert house.cache.pinned == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[prompt]", "is not a TOML file"),
        ("text = 'x'", "something else than prompts"),
        ("[prompt]\ntext = 'x'", "something else than prompts"),
        ("[[prompt]]\nvoice = 'x'", "prompt 1 in .*the field 'text' is missing"),
        ("[[prompt]]\ntext = 'x'\n[[prompt]]\ntext = 'y'\nspede = 2", "prompt 2 .*unknown field"),
        ("[[prompt]]\ntext = 'x'\nspeed = 9", "prompt 1 in .*0.5 to 2"),
        (f"[[prompt]]\ntext = '{'x' * (MAX_CHARS + 1)}'", "more than 2000 characters"),
    ],
)
def test_wrong_files_are_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_prompts(prompts_file(tmp_path, text), UtteranceSettings())
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_prompts(tmp_path / "none.toml", UtteranceSettings())
