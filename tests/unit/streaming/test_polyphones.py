import pytest

from cosyvoice_stream.streaming import pinyin
from cosyvoice_stream.streaming.lexicon import Lexicon
from cosyvoice_stream.streaming.polyphones import (
    Ambiguity,
    _common_readings,
    _words,
    ambiguities,
    homophones,
)

pytestmark = pytest.mark.unit


def found(text: str) -> dict[str, tuple[str, ...]]:
    listed = ambiguities(text)
    assert all(text[each.char_start : each.char_end] == each.text for each in listed)
    return {each.text: each.readings for each in listed}


@pytest.mark.parametrize(
    ("text", "word", "readings"),
    [
        ("请找行长。", "行长", ("hang2 zhang3", "xing2 chang2")),
        ("那个行吗？", "行", ("xing2", "hang2")),
        ("再重做一遍", "重", ("zhong4", "chong2")),
        ("他发了", "发", ("fa1", "fa4")),
        ("长得很高", "长", ("zhang3", "chang2")),
        ("买东西", "东西", ("dong1 xi5", "dong1 xi1")),
        ("The 行 of it", "行", ("xing2", "hang2")),
    ],
)
def test_lists_what_is_not_certain(text: str, word: str, readings: tuple[str, ...]) -> None:
    assert found(text)[word] == readings


@pytest.mark.parametrize(
    "text", ["", "重庆银行很重要", "剪头发", "我们说话", "一个人不走了", "hello", "ありがとう"]
)
def test_what_a_dictionary_knows_is_certain(text: str) -> None:
    assert found(text) == {}


def test_every_reading_is_one_of_a_lexicon() -> None:
    listed = [
        Ambiguity(word, 0, len(word), readings)
        for word, readings in (*_words().items(), *_common_readings().items())
    ]
    assert len(listed) > 150
    for each in listed:
        for reading in each.readings:
            assert all(pinyin.to_tokens(syllable) for syllable in reading.split()), each
            Lexicon({each.text: reading})


def test_homophones_cover_what_people_say() -> None:
    table = homophones()
    assert (table["hang2"], table["chong2"], table["de5"]) == ("航", "虫", "的")
    missing = [
        each
        for each in ("zhang3", "zhong4", "hao4", "fa1", "xing2", "lv4", "nv3", "jue2", "ma5", "ri4")
        if each not in table
    ]
    assert missing == []
    assert all(len(char) == 1 for char in table.values())
