"""Traditional characters become simplified ones, in their places, however the text arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencc import OpenCC

from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.simplify import Simplifier

pytestmark = pytest.mark.unit

TEXT = "乾隆皇帝喝乾了一杯，頭髮發乾淨。後天皇后，龍鍾老態，一目瞭然；會議3點開始。"
SIMPLE = "乾隆皇帝喝干了一杯，头发发干净。后天皇后，龙钟老态，一目了然；会议3点开始。"


def simplify(text, *cuts):
    stage = Simplifier()
    places = [0, *sorted(cuts), len(text)]
    parts = []
    for start, end in zip(places, places[1:], strict=False):
        parts += stage.push(MappedText.of(text[start:end], start))
    return MappedText.join(parts + stage.flush())


def test_words_decide_where_characters_do_not():
    assert simplify(TEXT).text == SIMPLE
    assert OpenCC("t2s").convert(TEXT) == SIMPLE


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_fragments_make_no_difference(cuts):
    cut = simplify(TEXT, *cuts)
    assert cut == simplify(TEXT)
    assert cut.starts == tuple(range(len(TEXT)))


def test_only_a_word_that_may_go_on_is_held():
    stage = Simplifier()
    assert [part.text for part in stage.push(MappedText.of("會議乾"))] == ["会议"]
    assert [part.text for part in stage.push(MappedText.of("淨", 3))] == ["干净"]
    stage.push(MappedText.of("乾", 4))
    assert [part.text for part in stage.break_here()] == ["干"]
