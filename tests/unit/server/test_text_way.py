import asyncio
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.text_stages import TextStages
from cosyvoice_stream.server.text_way import TextWay
from cosyvoice_stream.types import FLUSH, Flush, WordMark
from support.virtual_time import run_virtually

pytestmark = pytest.mark.unit

INFO = FakeEngine().info
CLEAN = partial(TextStages, INFO, clean=True)
PLAIN = partial(TextStages, INFO, clean=False)


class Clock:
    now = 1.0

    def __call__(self):
        return self.now


async def stream(*fragments):
    for fragment in fragments:
        yield fragment


def travel(*fragments, form=CLEAN):
    """The way, and what the engine was given."""
    way = TextWay(stream(*fragments), form(), Clock())

    async def collect():
        return [piece async for piece in way.fragments()]

    return way, asyncio.run(collect())


def spans_of(way, pieces, text):
    """Each word that the engine got, and what stands at its place in the text of the client."""
    given = "".join(piece for piece in pieces if not isinstance(piece, Flush))
    position = 0
    for word in given.split():
        start = given.index(word, position)
        position = start + len(word)
        first, last = way.source_span(start, position)
        yield word, text[first:last]


def test_plain_text_keeps_its_places():
    text = "a *b* c"
    way, pieces = travel(text, form=PLAIN)
    assert "".join(pieces) == text
    assert way.source_span(2, 5) == (2, 5)
    assert way.characters == 7


def test_words_keep_their_places_in_the_text_with_markup():
    text = "# Title\n\nSome **bold** and `code` text."
    way, pieces = travel(text)
    found = dict(spans_of(way, pieces, text))
    assert found["bold"] == "bold"
    assert found["code"] == "code"
    assert "*" not in "".join(pieces)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["plain", "**bold**", "_soft_", "`code`", "🙂", "3.5"]), max_size=8),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_places_do_not_depend_on_the_fragments(words, cuts):
    text = " ".join(words)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    fragments = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    whole, cut = travel(text), travel(*fragments)
    assert list(spans_of(*whole, text)) == list(spans_of(*cut, text))
    for word, source in spans_of(*cut, text):
        assert word.strip(".") in source


def test_a_flush_comes_behind_what_the_cleaner_held():
    _, pieces = travel("half of *it", FLUSH, " and the rest")
    before = pieces[: pieces.index(FLUSH)]
    assert "it" in "".join(before)
    assert "rest" in "".join(piece for piece in pieces if piece is not FLUSH)


def test_places_outside_the_text_are_bent_into_it():
    way, _ = travel("abc", form=PLAIN)
    assert way.source_span(-5, 99) == (0, 3)
    assert way.source_span(7, 3) == (2, 3)
    assert travel("")[0].source_span(0, 4) == (0, 0)


def test_notes_when_text_came_and_how_long_it_was_waited_for():
    clock = Clock()

    async def slow():
        clock.now += 2.0
        yield "The first clause, and then"
        clock.now += 3.0
        yield " more."

    async def test():
        way = TextWay(slow(), CLEAN(), clock)
        pieces = way.fragments()
        await anext(pieces)
        first = way.clause_at
        async for _ in pieces:
            pass
        return way, first

    way, first = asyncio.run(test())
    assert first in (3.0, None)
    assert way.clause_at in (3.0, 6.0)
    assert way.arrived_at == 6.0
    assert way.waited_s() == 5.0


def test_closing_closes_the_text_of_the_client():
    closed = []

    async def text():
        try:
            yield "some words"
            yield "more"
        finally:
            closed.append(True)

    async def test():
        pieces = TextWay(text(), CLEAN(), Clock()).fragments()
        await anext(pieces)
        await pieces.aclose()

    asyncio.run(test())
    assert closed == [True]


reading = partial(TextStages, INFO, clean=True, normalize=True)


def words(way, given, text):
    """Word marks for every word that the engine was given, in the client's text."""
    marks = []
    for at, found in enumerate(re.finditer(r"[\w'-]+", given)):
        marks.append(WordMark(found[0], found.start(), found.end(), at * 10, at * 10 + 10))
    return [(w.text, w.char_start, w.char_end, w.start_sample) for w in way.in_client_text(marks)]


def test_words_of_a_number_are_one_word_as_it_was_sent():
    text = "It cost **$9.99** at 9:30 am, didn't it?"
    way, pieces = travel(text, form=reading)
    given = "".join(pieces)
    assert given == ("It cost nine dollars and ninety-nine cents at nine thirty AM, didn't it?")
    assert words(way, given, text) == [
        ("It", 0, 2, 0),
        ("cost", 3, 7, 10),
        ("$9.99", 10, 15, 20),
        ("at", 18, 20, 70),
        ("9:30 am", 21, 28, 80),
        ("didn't", 30, 36, 110),
        ("it", 37, 39, 120),
    ]


async def stalling(*steps):
    """Fragments, and seconds before the next one."""
    for step in steps:
        if isinstance(step, str):
            yield step
        else:
            await asyncio.sleep(step)


def paced(*steps):
    """What the engine gets while the text comes in steps; a `Flush` is a bar."""

    async def collect():
        way = TextWay(stalling(*steps), reading(), Clock(), hold_back_s=0.4)
        pieces = [piece async for piece in way.fragments()]
        return "".join("|" if piece is FLUSH else piece for piece in pieces)

    return run_virtually(collect())


@pytest.mark.parametrize(
    ("steps", "given"),
    [
        (("It is so.", 0.39, " And on."), "It is so. And on."),
        (("It is so.", 0.41, " And on."), "It is so.| And on."),
        (("It is so.", 9, " And", 9, " on. "), "It is so.| And on. "),
        (('"Really?!"', 0.5, " Yes."), '"Really?!"| Yes.'),
        (("costs 3.", 0.5, "5 now"), "costs three point five now"),
        (("costs 3", 1.9, ".5 now"), "costs three point five now"),
        (("costs 3", 2.1, " now"), "costs three now"),
        (("ask Dr.", 1.5, " Smith now"), "ask Doctor Smith now"),
        (("水温是36", 1.5, ".", 1.5, "8度，刚好。"), "水温是三十六点八度，刚好。"),
        (("half a wo", 5, "rd"), "half a word"),
    ],
)
def test_holds_text_back_for_a_bounded_time(steps, given):
    assert paced(*steps) == given


def test_closing_while_more_text_is_waited_for():
    closed = []

    async def text():
        try:
            yield "So be it."
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def test():
        way = TextWay(text(), reading(), Clock(), hold_back_s=0.01)
        pieces = way.fragments()
        while (await anext(pieces)) is not FLUSH:
            pass
        waiting = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await way.aclose()

    run_virtually(test())
    assert closed == [True]


def test_a_language_without_number_words_is_named_with_its_place():
    way, _ = travel("Η τιμή είναι 25 ευρώ.", form=reading)
    (warning,) = way.take_warnings()
    assert "'el'" in warning.message
    assert (warning.char_start, warning.char_end) == (13, 15)
