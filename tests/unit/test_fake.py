import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import SynthesisFailed, UnsupportedLanguage
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.types import FLUSH, ReferenceAudio, SynthesisOptions

pytestmark = pytest.mark.unit


async def fragments(*pieces):
    for piece in pieces:
        yield piece


async def speak(engine, *pieces, options=None, voice=0):
    spoken = engine.synthesize(
        fragments(*pieces), engine.info.voices[voice], options or SynthesisOptions()
    )
    return [chunk async for chunk in spoken]


def rendered(chunks):
    return np.concatenate([chunk.samples for chunk in chunks])


def test_is_an_engine():
    assert isinstance(FakeEngine(), Engine)


def test_duration_follows_from_the_text():
    chunks = asyncio.run(speak(FakeEngine(ms_per_char=50), "Hello world"))
    assert len(rendered(chunks)) == 24_000 * 11 * 50 // 1000
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [c.start_sample for c in chunks] == list(
        np.cumsum([0] + [len(c.samples) for c in chunks[:-1]])
    )


def test_words_point_into_the_text_and_come_no_later_than_their_audio():
    text = "Well, it's 7 o'clock."
    chunks = asyncio.run(speak(FakeEngine(), text))
    words = [(chunk.start_sample, word) for chunk in chunks for word in chunk.words]
    assert [word.text for _, word in words] == ["Well", "it's", "7", "o'clock"]
    for chunk_start, word in words:
        assert text[word.char_start : word.char_end] == word.text
        assert chunk_start <= word.start_sample < word.end_sample


@pytest.mark.parametrize("text", ["", "   ", "。", "……", "!!!", "🙂🙂", "——"])
def test_nothing_to_say_is_one_empty_final_chunk(text):
    (chunk,) = asyncio.run(speak(FakeEngine(), text))
    assert chunk.final
    assert len(chunk.samples) == 0
    assert chunk.words == ()


@settings(max_examples=40, deadline=None)
@given(st.text("ab c.'", max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_any_cut_of_the_text_gives_the_same_samples(text, cuts):
    engine = FakeEngine(sample_rate=1000)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    whole, cut = asyncio.run(speak(engine, text)), asyncio.run(speak(engine, *pieces))
    assert np.array_equal(rendered(whole), rendered(cut))
    assert [w for c in whole for w in c.words] == [w for c in cut for w in c.words]


def test_flush_speaks_a_word_that_could_go_on():
    async def run():
        gate = asyncio.Event()

        async def text():
            yield "wait"
            yield FLUSH
            await gate.wait()

        engine = FakeEngine()
        chunks = engine.synthesize(text(), engine.info.voices[0], SynthesisOptions())
        first = await anext(chunks)
        await chunks.aclose()
        return first

    assert len(asyncio.run(run()).samples) > 0


def test_options_change_the_sound():
    engine = FakeEngine()
    plain, fast, loud, high = (
        rendered(asyncio.run(speak(engine, "tone", options=options)))
        for options in (
            SynthesisOptions(),
            SynthesisOptions(speed=2.0),
            SynthesisOptions(volume=2.0),
            SynthesisOptions(pitch=12.0),
        )
    )
    assert len(fast) * 2 == len(plain)
    assert np.allclose(loud, plain * 2)
    assert not np.allclose(high, plain)
    assert not np.allclose(rendered(asyncio.run(speak(engine, "tone", voice=1))), plain)


def test_fails_where_the_script_says():
    engine = FakeEngine(fail_on={"boom": ValueError("secret")})
    with pytest.raises(SynthesisFailed) as caught:
        asyncio.run(speak(engine, "all well, boom"))
    assert "secret" not in str(caught.value)
    assert (engine.counts.failed, engine.counts.live) == (1, 0)


def test_refuses_a_script():
    engine = FakeEngine(refuse={"zh": lambda word: not word.isascii()})
    with pytest.raises(UnsupportedLanguage) as caught:
        asyncio.run(speak(engine, "你好"))
    assert caught.value.language == "zh"


def test_cancelling_frees_everything_and_closes_the_text():
    closed = []

    async def text():
        try:
            yield "one two three"
        finally:
            closed.append(True)

    async def run():
        gate = ChunkGate()
        engine = FakeEngine(gate=gate)
        chunks = engine.synthesize(text(), engine.info.voices[0], SynthesisOptions())
        await gate.allow(1)
        await anext(chunks)
        stuck = asyncio.create_task(anext(chunks))
        await gate.arrived(2)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        return engine.counts

    counts = asyncio.run(run())
    assert closed == [True]
    assert (counts.live, counts.cancelled, counts.finished) == (0, 1, 0)


def test_closing_between_two_chunks_counts_as_a_cancel():
    async def run():
        engine = FakeEngine()
        chunks = engine.synthesize(
            fragments("one two three"), engine.info.voices[0], SynthesisOptions()
        )
        await anext(chunks)
        await chunks.aclose()
        return engine.counts

    counts = asyncio.run(run())
    assert (counts.live, counts.cancelled) == (0, 1)


def test_a_long_text_is_rendered_as_it_is_taken():
    async def run():
        engine = FakeEngine()
        chunks = engine.synthesize(
            fragments("word " * 20_000), engine.info.voices[0], SynthesisOptions()
        )
        await anext(chunks)
        await chunks.aclose()
        return engine.counts.chunks

    assert asyncio.run(run()) == 1


def test_a_voice_follows_from_the_recording():
    engine = FakeEngine()
    one, other = (
        asyncio.run(engine.enrol(ReferenceAudio(np.full(10, x, np.float32), 24_000, 8000.0), None))
        for x in (0.1, 0.2)
    )
    assert one.metadata != other.metadata
    assert (one.voice_id, one.name) == ("", "")
