"""A text falls into the same segments however it arrives, and nothing of it is lost."""

from __future__ import annotations

import random

import pytest

from cosyvoice_stream.cosyvoice.segments import LONGEST_S, SegmentCutter, SegmentText, spoken_s

pytestmark = pytest.mark.unit

TEXTS = (
    "Hello there, this is the first clause of a longer text. Then comes a sentence. And one more!",
    "你好，今天天气很好，我们去公园走走吧。然后回家吃饭。晚上再看一部电影，好不好？",
    "The price is 3.50 euros, 你知道吗？Yes. No. OK.",
    "word " * 400,
    "嗯。",
    "A",
)


def cut(text: str, sizes: list[int], *, by_clause: bool = False) -> list[SegmentText]:
    cutter = SegmentCutter(by_clause=by_clause)
    out, start = [], 0
    for size in sizes:
        out += cutter.push(text[start : start + size])
        start += size
    return [*out, *cutter.push(text[start:]), *cutter.flush()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(5))
def test_any_fragments_give_the_same_segments(text: str, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 9) for _ in range(len(text))]
    assert cut(text, sizes) == cut(text, [])


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_is_lost_or_said_twice(text: str) -> None:
    segments = cut(text, [])
    assert "".join("".join(s.text.split()) for s in segments) == "".join(text.split())
    assert all(s.closes for s in segments)
    for segment in segments:
        assert text[segment.char_start :].startswith(segment.text)


@pytest.mark.parametrize("text", TEXTS)
def test_clauses_of_a_segment_add_up_to_it(text: str) -> None:
    whole, joined, part = cut(text, []), [], ""
    for piece in cut(text, [], by_clause=True):
        part += piece.text
        if piece.closes:
            joined.append(part.strip())
            part = ""
    assert part == ""
    assert [segment.text for segment in whole] == joined


def test_the_first_segment_is_short_and_none_is_long() -> None:
    first, *rest = cut(TEXTS[0], [])
    assert first.text == "Hello there, this is the first clause of a longer text."
    assert all(spoken_s(s.text) < LONGEST_S + 8 for s in cut(TEXTS[3], []))
    assert len(cut(TEXTS[3], [])) > 5
    assert [s.text for s in rest] == ["Then comes a sentence. And one more!"] or len(rest) == 2


def test_a_break_ends_the_segment() -> None:
    cutter = SegmentCutter()
    assert cutter.push("One two three") == []
    (segment,) = cutter.break_here()
    assert segment == SegmentText("One two three", 0, True, segment.ends_sentence)
    assert cutter.push(" four five") == []
    (segment,) = cutter.flush()
    assert segment.text == "four five"
    assert segment.char_start == 14


@pytest.mark.parametrize("text", ["", "   ", "。", "……", "!!!"])
def test_nothing_to_say_gives_no_segment(text: str) -> None:
    assert cut(text, []) == []
    assert cut(text, [], by_clause=True) == []
