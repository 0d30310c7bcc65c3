"""Times of characters from the times of words."""

from __future__ import annotations

import pytest

from cosyvoice_stream.server.char_times import CharTime, CharTimes
from cosyvoice_stream.server.wire import WordTime

pytestmark = pytest.mark.unit


def word(text: str, at: int, start_ms: float, end_ms: float) -> WordTime:
    return WordTime(
        text=text, char_start=at, char_end=at + len(text), start_ms=start_ms, end_ms=end_ms
    )


def test_a_word_is_shared_by_its_characters_and_a_pause_by_what_is_between() -> None:
    times = CharTimes("ab, cd!")
    times.add_words([word("ab", 0, 100, 200), word("cd", 4, 300, 400)])
    assert times.take() == [
        CharTime("a", 100, 150),
        CharTime("b", 150, 200),
        CharTime(",", 200, 250),
        CharTime(" ", 250, 300),
        CharTime("c", 300, 350),
        CharTime("d", 350, 400),
    ]
    assert times.take() == []
    assert times.finish(500) == [CharTime("!", 400, 500)]


def test_text_that_grows_is_taken_once_and_whole() -> None:
    times = CharTimes()
    taken = []
    for piece, words in (
        ("one ", [word("one", 0, 0, 30)]),
        ("two ", []),
        ("three", [word("two", 4, 40, 70), word("three", 8, 70, 90)]),
    ):
        times.add_text(piece)
        times.add_words(words)
        taken += times.take()
    taken += times.finish(100)
    assert "".join(char.char for char in taken) == "one two three"
    assert all(a.end_ms <= b.start_ms for a, b in zip(taken, taken[1:], strict=False))


def test_words_without_characters_between_them_keep_their_pause() -> None:
    times = CharTimes("你好")
    times.add_words([word("你", 0, 0, 100), word("好", 1, 150, 200)])
    assert times.take() == [CharTime("你", 0, 100), CharTime("好", 150, 200)]


def test_without_word_times_the_text_is_spread_over_the_audio() -> None:
    assert CharTimes("ab").finish(100) == [CharTime("a", 0, 50), CharTime("b", 50, 100)]
    assert CharTimes("").finish(100) == []


def test_times_that_go_back_are_held() -> None:
    times = CharTimes("a b")
    times.add_words([word("a", 0, 0, 100), word("b", 2, 60, 80), word("a", 0, 0, 9)])
    assert [char.end_ms for char in times.take()] == [100, 100, 100]
