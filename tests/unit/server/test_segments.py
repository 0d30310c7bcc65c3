"""SSML as one stream of chunks, with an engine of tones."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from cosyvoice_stream.errors import InvalidMarkup, SynthesisFailed, VoiceStreamError
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.segments import Segments, in_manner
from cosyvoice_stream.server.text_stages import TextStages
from cosyvoice_stream.server.text_way import TextWay
from cosyvoice_stream.streaming.ssml import Manner
from cosyvoice_stream.types import SynthesisOptions

pytestmark = pytest.mark.unit

RATE = 1000
CHAR = 50
"""Samples of one letter."""


async def stream(*fragments):
    for fragment in fragments:
        yield fragment


def speak(*fragments, word_times=True, engine=None, padding=0):
    """All chunks, the manners of the segments, and what ended it."""
    engine = engine or FakeEngine(sample_rate=RATE)
    way = TextWay(stream(*fragments), TextStages(engine.info, clean=True, ssml=True), lambda: 0.0)
    manners = []

    async def segment(text, manner):
        manners.append(manner)
        options = in_manner(SynthesisOptions(), manner)
        quiet = np.zeros(padding, np.float32)
        async for chunk in engine.synthesize(text, engine.info.voices[0], options):
            first = chunk.start_sample == 0 and len(chunk.samples)
            parts = [quiet[: padding * bool(first)], chunk.samples, quiet[: padding * chunk.final]]
            yield replace(chunk, samples=np.concatenate(parts))

    async def collect():
        chunks, error = [], None
        segments = Segments(way.items(), segment, RATE, word_times=word_times)
        try:
            async for chunk in segments.chunks():
                chunks.append(chunk)
        except VoiceStreamError as failure:
            error = failure
        return chunks, error

    chunks, error = asyncio.run(collect())
    assert engine.counts.live == 0
    position = 0
    for chunk in chunks:
        assert chunk.start_sample == position
        position += len(chunk.samples)
    if error is None:
        assert [chunk.final for chunk in chunks].index(True) == len(chunks) - 1
    return chunks, manners, error, way


def samples_of(chunks):
    return np.concatenate([chunk.samples for chunk in chunks])


def words_of(chunks):
    return {word.text: word for chunk in chunks for word in chunk.words}


def bookmarks_of(chunks):
    return {mark.name: mark.sample for chunk in chunks for mark in chunk.bookmarks}


def test_one_segment_is_what_the_engine_says():
    chunks, manners, error, _ = speak("<speak>one two</speak>")
    assert (manners, error) == ([Manner()], None)
    assert len(samples_of(chunks)) == CHAR * len("one two")


@pytest.mark.parametrize("padding", [0, 30])
def test_a_pause_is_exactly_as_long_as_it_says(padding):
    chunks, _, _, way = speak("<speak>one<break time='1500ms'/>two three</speak>", padding=padding)
    loud = np.flatnonzero(np.abs(samples_of(chunks)) > 0.003)
    gaps = np.diff(loud)
    assert abs(int(gaps.max()) - 1 - 1500) <= 4  # a tone begins and ends with a zero crossing
    words = words_of(chunks)
    assert words["two"].start_sample - words["one"].end_sample == pytest.approx(1500, abs=4)
    texts = [(word.text, word.char_start) for word in way.in_client_text(words.values())]
    assert texts == [("one", 7), ("two", 32), ("three", 36)]


def test_pauses_alone_and_at_both_ends():
    assert len(samples_of(speak("<speak><break time='2.5s'/></speak>")[0])) == 2500
    chunks, _, _, _ = speak("<speak> <break time='1s'/> one <break time='1s'/> </speak>")
    assert len(samples_of(chunks)) == pytest.approx(2000 + 3 * CHAR, abs=4)


def test_manners_change_what_is_behind_them():
    chunks, manners, _, _ = speak(
        "<speak>one <prosody rate='200%' pitch='+12st' volume='50'>two</prosody> six</speak>"
    )
    assert manners == [Manner(), Manner(2.0, 12.0, 0.5), Manner()]
    words = words_of(chunks)
    lengths = {text: word.end_sample - word.start_sample for text, word in words.items()}
    assert lengths == {"one": 150, "two": 75, "six": 150}
    heard = samples_of(chunks)
    two = words["two"]
    loud = np.abs(heard[two.start_sample : two.end_sample]).max()
    assert loud == pytest.approx(np.abs(heard[: 3 * CHAR]).max() / 2, rel=0.05)


def test_manners_stay_within_the_ranges():
    options = SynthesisOptions(speed=1.5, pitch=10, volume=1.5)
    got = in_manner(options, Manner(3.0, 12.0, 4.0, language="de"))
    assert (got.speed, got.pitch, got.volume, got.language) == (2.0, 12.0, 2.0, "de")
    assert in_manner(options, Manner()) == options


def test_bookmarks_have_the_time_of_the_word_behind_them():
    chunks, manners, _, _ = speak(
        "<speak><mark name='a'/>one <mark name='b'/>two<break time='1s'/>",
        "<mark name='c'/> x<mark name='d'/></speak>",
    )
    words = words_of(chunks)
    marks = bookmarks_of(chunks)
    assert marks["a"] == 0
    assert marks["b"] == words["two"].start_sample
    assert marks["c"] == pytest.approx(words["x"].start_sample, abs=2)
    assert marks["d"] == len(samples_of(chunks))
    assert len(manners) == 2  # a bookmark parts nothing


def test_bookmarks_part_segments_where_words_have_no_times():
    chunks, manners, _, _ = speak("<speak>one <mark name='b'/>two</speak>", word_times=False)
    assert bookmarks_of(chunks) == {"b": 3 * CHAR}
    assert len(manners) == 2


def test_no_bookmark_comes_after_its_audio():
    text = "<speak>" + "".join(f"word{n} <mark name='m{n}'/>" for n in range(20)) + "end</speak>"
    chunks, _, _, _ = speak(*[text[at : at + 3] for at in range(0, len(text), 3)])
    for chunk in chunks:
        assert all(mark.sample >= chunk.start_sample for mark in chunk.bookmarks)
    assert len(bookmarks_of(chunks)) == 20


def test_what_stands_before_a_mistake_is_heard_before_the_error():
    chunks, _, error, _ = speak("<speak>one two ", "<b></speak>")
    assert isinstance(error, InvalidMarkup)
    assert len(samples_of(chunks)) == CHAR * len("one two")


def test_a_failure_of_the_engine_ends_it():
    engine = FakeEngine(sample_rate=RATE, fail_on={"two": ValueError("x")})
    chunks, _, error, _ = speak("<speak>one<break time='1s'/>two</speak>", engine=engine)
    assert isinstance(error, SynthesisFailed)
    assert len(samples_of(chunks)) == pytest.approx(3 * CHAR + 1000, abs=4)


@pytest.mark.parametrize(
    "text", ["", " ", "<speak/>", "<speak> <p> </p></speak>", "<speak>。</speak>"]
)
def test_nothing_to_say(text):
    chunks, _, error, _ = speak(text)
    assert error is None
    assert len(samples_of(chunks)) == 0


def test_closing_it_closes_the_engine_and_the_text():
    engine = FakeEngine(sample_rate=RATE)
    closed = []

    async def endless():
        try:
            yield "<speak>"
            while True:
                yield "one two three <break time='10ms'/>"
        finally:
            closed.append(True)

    async def run():
        way = TextWay(endless(), TextStages(engine.info, clean=True, ssml=True), lambda: 0.0)

        def segment(text, manner):
            return engine.synthesize(text, engine.info.voices[0], SynthesisOptions())

        chunks = Segments(way.items(), segment, RATE, word_times=True).chunks()
        for _ in range(9):
            await anext(chunks)
        await chunks.aclose()
        assert engine.counts.live == 0
        assert closed == [True]

    asyncio.run(run())
